# shellcheck shell=bash
# The list of guest tests, their runs, and the verdict.

# The list's lines: NAME SHAPE INIT [LIMIT] [kernel<VERSION]. listed FILE: them, without comments, with the limit.
listed() {
  sed 's/#.*//' "$1" | awk -v limit="$TEST_LIMIT" '
    NF { older = $NF ~ /^kernel</ ? $NF : ""; print $1, $2, $3, (NF - (older != "") > 3 ? $4 : limit), older }'
}

# kernel_is OLDER: whether the image's kernel is, as a line of the list demands it.
kernel_is() {
  local limit=${1#kernel<}
  [ -z "$1" ] || [ "$(printf '%s\n' "$limit" "$(cat "$IMAGE/version")" | sort -V | head -n 1)" != "$limit" ]
}
TEST_LIMIT=60
BOOT_LIMIT=${VM_BOOT_LIMIT:-1500}

# run_list LIST PROGRAMS FOLDER [NAME...]: the tests of a list, with their report. True when all passed and there was one.
run_list() {
  local wrong
  wrong=$(mismatches "$1" "$2/guest")
  if [ -n "$wrong" ]; then
    echo "$wrong"
    echo "0 passed, $(wc -l <<<"$wrong") failed"
    return 1
  fi
  run_tests "$@"
}

run_tests() {
  plan_groups "$1" "$3" "$2" "${@:4}"
  run_groups "$3"
  report "$3"
}

# mismatches LIST PROGRAM: what is in one of them but not in the other. A test nobody lists would never run; a listed one that
# does not exist would "pass" with no test executed.
mismatches() {
  local in_program
  in_program=$("$2" --list --format terse | sed -n 's/: test$//p' | sort)
  comm -23 <(listed "$1" | cut -d' ' -f1 | sort -u) <(echo "$in_program") | sed 's/$/: listed, but no such test/'
  comm -13 <(listed "$1" | cut -d' ' -f1 | sort -u) <(echo "$in_program") | sed 's/$/: not in the list of tests/'
  listed "$1" | cut -d' ' -f1 | sort | uniq -d | sed 's/$/: listed twice/'
}

# plan_groups LIST FOLDER PROGRAMS [NAME...]: a folder for each shape and init that the named tests want (all without names).
plan_groups() {
  local list=$1 folder=$2 programs=$3 name shape init limit older group
  while read -r name shape init limit older; do
    [ $# = 3 ] || wanted "$name" "${@:4}" || continue
    if ! kernel_is "$older"; then
      say "$name: LEFT OUT, it is about kernels before ${older#kernel<} (VM_KERNEL names another suite to take one from)"
      continue
    fi
    group=$folder/$shape-$init
    if [ ! -d "$group" ]; then
      mkdir -p "$group/share"
      # Links, not a symlink: the guest would look for its target in its own root.
      cp -rl "$programs" "$group/share/bin"
      echo "$shape $init" >"$group/machine"
    fi
    echo "$name $limit" >>"$group/plan"
  done < <(listed "$list")
}

# wanted NAME PATTERN...: by its name or a part of it.
wanted() {
  local pattern
  for pattern in "${@:2}"; do [[ $1 != *"$pattern"* ]] || return 0; done
  return 1
}

# run_groups FOLDER: as many guests at a time as there are processors; each runs on one.
run_groups() {
  local group jobs=${VM_JOBS:-$(nproc)}
  for group in "$1"/*/; do
    [ -d "$group" ] || continue
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    nice setpriv --pdeathsig KILL "$HERE/lib/group" "${group%/}" "$BOOT_LIMIT" &
  done
  wait
}

# verdict FOLDER NAME: prints how a test of a group ended; true where it passed. The program says so itself, in one executed
# test: an exit status of 0 alone also comes from no test, or an ignored one.
verdict() {
  local log=$1/share/$2.log status=$1/share/$2.status end
  end=$(cat "$1/end" 2>/dev/null || echo "no end recorded")
  if [ ! -e "$status" ]; then
    if [ -e "$log" ]; then echo "FAILED in the middle, the guest $end"; else echo "FAILED did not run, the guest $end"; fi
  elif [ "$(cat "$status")" = 124 ] || [ "$(cat "$status")" = 137 ]; then echo "FAILED took longer than its limit"
  elif [ "$(cat "$status")" != 0 ]; then echo "FAILED with exit status $(cat "$status")"
  elif ! grep -q '^test result: ok\. 1 passed; 0 failed; 0 ignored;' "$log" 2>/dev/null; then echo "FAILED no test was executed"
  else echo "ok"; return 0; fi
  return 1
}

# report FOLDER: each test's verdict, the logs of those that failed, the times, and the closing line. True when all passed and
# there was one.
report() {
  local passed=0 failed=0 group name _ answer
  for group in "$1"/*/; do
    [ -e "$group/plan" ] || continue
    group=${group%/}
    while read -r name _; do
      if answer=$(verdict "$group" "$name"); then passed=$((passed + 1)); else failed=$((failed + 1)); fi
      echo "guest $(cat "$group/machine") $name ... $answer"
      [ "$answer" = ok ] || show_log "$group" "$name"
    done <"$group/plan"
    echo "      $(cat "$group/machine"): $(cat "$group"/seconds-* 2>/dev/null | paste -sd+) s, console in $group"
  done
  [ $((passed + failed)) -gt 0 ] || echo "no guest test ran"
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

# What the test said or, where it said nothing, what the guest did, its last line ended.
show_log() {
  if [ -s "$1/share/$2.log" ]; then tail -n 60 "$1/share/$2.log"
  else tail -qn 15 "$1"/console-*.log "$1/qemu.log" 2>/dev/null | tr -d '\r'; fi | awk '{ print "    " $0 }'
}
