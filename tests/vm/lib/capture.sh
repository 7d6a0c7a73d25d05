# shellcheck shell=bash
# Machines kept as files for tests that need no guest: tests/machines/guest.

CAPTURED_SHAPES="big hole isolated memless tiers topo4"

# capture_machines FOLDER TARGET SHAPE...: boots each shape, in which lib/capture-machine takes the place of the tests, and moves
# what it left to TARGET/SHAPE.*.
capture_machines() {
  local folder=$1 target=$2 shape file
  mkdir "$folder/programs"
  cp "$HERE/lib/capture-machine" "$folder/programs/guest"
  printf 'capture %s fast 200\n' "${@:3}" >"$folder/list"
  plan_groups "$folder/list" "$folder/run" "$folder/programs"
  run_groups "$folder/run"
  mkdir -p "$target"
  for shape in "${@:3}"; do
    folder=$1/run/$shape-fast
    [ "$(cat "$folder/share/capture.status" 2>/dev/null)" = 0 ] || { show_log "$folder" capture; die "$shape was not captured"; }
    for file in "$folder"/share/machine.*; do cp "$file" "$target/$shape.${file#*/machine.}"; done
  done
}
