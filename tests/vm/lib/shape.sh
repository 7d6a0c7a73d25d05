# shellcheck shell=bash
# A machine's shape, a file in shapes/, as QEMU's arguments. The words of a shape:
#   about TEXT                      what it is for
#   like SHAPE                      all of another shape's lines
#   cpus N,sockets=..,cores=..      as QEMU's -smp
#   plug SOCKET CORE THREAD         a CPU beyond cpus' N, up to its maxcpus
#   node ID [cpus=LIST] [mem=MIB]   a NUMA node; other properties pass through
#   distances D...                  one line for each node, in the order of the nodes
#   iommu intel|none                the last one counts; none by default
#   root NODE PORTS BUS             a PCIe host bridge on the node, at bus BUS (hex); its ports are named NODE.0, NODE.1, ...
#   device PORT DRIVER[,PROPERTY..] a device behind a port, or behind a bridge's id
#   cable END...                    joins the NICs that have netdev=END
#   hmat ARGUMENTS                  bandwidth or latency from an initiator to a target
#   machine PROPERTY                more for QEMU's -machine
#   subsystem ID                    an NVMe subsystem, which SR-IOV needs
#   kernel WORDS                    more for the kernel's command line
#   affinity LIST                   systemd's CPUAffinity=

# An Intel model, because SMT on AMD ones needs more; with 1G pages and what glibc and Rust's std ask for.
CPU_MODEL=Nehalem-v1
CPU_FEATURES=+pdpe1gb,+rdrand,+rdtscp

# shape_arguments NAME: sets ARGUMENTS and KERNEL from the shape.
shape_arguments() {
  local machine=q35,hpet=off,smbus=off,sata=off,usb=off,vmport=off,graphics=off iommu=none memory=0 cables=0
  local -a nodes=() rows=()
  ARGUMENTS=() KERNEL=()
  shape_read "$1"
  shape_distances
  shape_iommu
  ARGUMENTS=(-cpu "$CPU_MODEL,$CPU_FEATURES" -machine "$machine" -m "${memory}M" "${IOMMU[@]}" "${ARGUMENTS[@]}")
}

# shape_read NAME: a line at a time; words of a line are never patterns.
shape_read() {
  local file=$HERE/shapes/$1 word line number=0
  local -a rest
  [ -f "$file" ] || die "no shape $1; there are: $(shapes)"
  while IFS= read -r line; do
    number=$((number + 1))
    read -r word line <<<"${line%%#*}" || continue
    read -ra rest <<<"$line" || true
    case $word in
      '' | about) ;;
      like) shape_read "$line" ;;
      cpus) ARGUMENTS+=(-smp "$line") ;;
      plug) ARGUMENTS+=(-device "$CPU_MODEL-x86_64-cpu,socket-id=${rest[0]},core-id=${rest[1]},thread-id=${rest[2]}") ;;
      node) shape_node "${rest[@]}" ;;
      distances) rows+=("$line") ;;
      iommu) iommu=$line ;;
      root) shape_root "${rest[@]}" ;;
      device) shape_device "${rest[@]}" ;;
      cable) shape_cable "${rest[@]}" ;;
      hmat) ARGUMENTS+=(-numa "hmat-lb,$line") ;;
      machine) machine+=,$line ;;
      subsystem) ARGUMENTS+=(-device "nvme-subsys,id=$line,nqn=$line") ;;
      kernel) KERNEL+=("${rest[@]}") ;;
      affinity) KERNEL+=("rig.affinity=$line") ;;
      *) die "shapes/$1, line $number: unknown word $word" ;;
    esac
  done <"$file"
}

shapes() { (cd "$HERE/shapes" && echo *); }

# shape_node ID [cpus=LIST] [mem=MIB] [PROPERTY=VALUE...]
shape_node() {
  local id=$1 word node="node,nodeid=$1"
  for word in "${@:2}"; do
    case $word in
      mem=*)
        memory=$((memory + ${word#*=}))
        ARGUMENTS+=(-object "memory-backend-ram,id=mem$id,size=${word#*=}M")
        node+=,memdev=mem$id
        ;;
      *) node+=,$word ;;
    esac
  done
  nodes+=("$id")
  ARGUMENTS+=(-numa "$node")
}

shape_distances() {
  local from to row
  for from in "${!rows[@]}"; do
    read -ra row <<<"${rows[$from]}"
    [ ${#row[@]} = ${#nodes[@]} ] || die "distances: ${#nodes[@]} nodes, ${#row[@]} in row $from"
    for to in "${!row[@]}"; do
      ARGUMENTS+=(-numa "dist,src=${nodes[$from]},dst=${nodes[$to]},val=${row[$to]}")
    done
  done
}

shape_iommu() {
  case $iommu in
    none) IOMMU=() ;;
    # caching-mode is what VFIO needs of an emulated one.
    intel) IOMMU=(-device "intel-iommu,intremap=on,caching-mode=on,aw-bits=48"); KERNEL+=(intel_iommu=on) ;;
    *) die "iommu: intel or none, not $iommu" ;;
  esac
}

# shape_root NODE PORTS BUS
shape_root() {
  local port
  ARGUMENTS+=(-device "pxb-pcie,id=root$1,bus=pcie.0,bus_nr=$((0x$3)),numa_node=$1")
  for ((port = 0; port < $2; port++)); do
    ARGUMENTS+=(-device "pcie-root-port,id=port$1.$port,bus=root$1,chassis=$(($1 * 8 + port + 1)),slot=$port,addr=$port.0,io-reserve=0")
  done
}

# shape_device PORT DRIVER[,PROPERTY...]
shape_device() {
  local bus=$1 driver=${2%%,*} properties=${2#"${2%%,*}"}
  case $bus in [0-9]*.[0-9]*) bus=port$bus ;; esac
  # No option ROM: nothing boots from these, and loading it takes time.
  case $driver in igb | e1000* | ati-vga | *-vga) properties+=,romfile= ;; esac
  ARGUMENTS+=(-device "$driver,bus=$bus$properties")
}

shape_cable() {
  local end
  cables=$((cables + 1))
  for end in "$@"; do ARGUMENTS+=(-netdev "hubport,hubid=$cables,id=$end"); done
}
