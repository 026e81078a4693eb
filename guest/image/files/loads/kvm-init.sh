#!/bin/sh
# First process of the KVM host: starts guests with Debian's qemu-system-riscv64, shows their consoles, powers off when all
# have ended. The guests' kernel and initial file system are /guest/Image and /guest/initrd. Kernel command line:
#   guest="..."             the guests' kernel command line (console=ttyS0 is added)
#   guests=N                how many guests (1); with more than one, console lines begin with the guest's number
#   vcpus=N memory=MIB      of each guest (1, 512)
#   halt_poll_ns=N          how long KVM polls before a halted vCPU sleeps (the module's own choice)
#   hugepages=thp|hugetlb|none  what backs the guests' memory: transparent huge pages, reserved 2 MiB pages, 4 KiB pages (thp)
#   aia=on|off              AIA for the guests, else a PLIC emulated by QEMU (on)
#   pin=1                   vCPU i of the only guest runs on hart i alone
export PATH=/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /tmp /run /hugepages
mount -t tmpfs -o mode=1777 shm /dev/shm
: "${guests:=1}" "${vcpus:=1}" "${memory:=512}" "${hugepages:=thp}" "${aia:=on}"

end() {
    echo "KVM $*"
    # Waits until the console has sent it: the end of the machine does not.
    stty sane
    poweroff -f
}
for number in "$guests" "$vcpus" "$memory" "${halt_poll_ns:-0}"; do
    case $number in '' | *[!0-9]*) end "failed reason=$number is not a number" ;; esac
done
while read -r module; do
    insmod "/modules/$module.ko" || end "failed reason=cannot load $module: has the machine the H extension?"
done </modules/order
[ -c /dev/kvm ] || end "failed reason=no /dev/kvm: has the machine the H extension?"
[ -z "$halt_poll_ns" ] || echo "$halt_poll_ns" >/sys/module/kvm/parameters/halt_poll_ns
# Memory comes when a vCPU touches it, on that vCPU's node: taken at the start it would all lie where the emulator started.
back="-object memory-backend-ram,id=ram,size=${memory}M"
case $hugepages in
    thp) echo always >/sys/kernel/mm/transparent_hugepage/enabled ;;
    none) echo never >/sys/kernel/mm/transparent_hugepage/enabled ;;
    hugetlb)
        pages=$((guests * memory / 2))
        echo $pages >/proc/sys/vm/nr_hugepages
        [ "$(cat /proc/sys/vm/nr_hugepages)" -ge $pages ] || end "failed reason=no $pages huge pages of 2 MiB to be had"
        mount -t hugetlbfs -o pagesize=2M none /hugepages
        back="-object memory-backend-file,id=ram,size=${memory}M,mem-path=/hugepages"
        ;;
    *) end "failed reason=hugepages=$hugepages is none of thp, hugetlb, none" ;;
esac
case $aia in
    on) machine=virt,aia=aplic-imsic ;;
    off) machine=virt ;;
    *) end "failed reason=aia=$aia is neither on nor off" ;;
esac
echo "KVM host kernel=$(uname -r) qemu=$(qemu-system-riscv64 --version | sed -n 's/.*(Debian \(.*\))/\1/p')" \
    "halt_poll_ns=$(cat /sys/module/kvm/parameters/halt_poll_ns) hugepages=$hugepages aia=$aia" \
    "guests=$guests vcpus=$vcpus memory_mib=$memory"

run_guest() {
    # shellcheck disable=SC2086  # $back is two words
    qemu-system-riscv64 -nodefaults -display none -no-reboot -M "$machine,memory-backend=ram" -accel kvm -cpu host \
        -m "${memory}M" -smp "$vcpus" $back -kernel /guest/Image -initrd /guest/initrd \
        -append "console=ttyS0 $guest" -serial stdio -monitor none -name "guest$1,debug-threads=on" </dev/null 2>&1
    status=$?
    [ $status = 0 ] || echo "KVM guest $1 failed status=$status"
}
pin_vcpus() {
    for index in $(seq 0 $((vcpus - 1))); do
        until thread=$(grep -lx "CPU $index/KVM" /proc/[0-9]*/task/[0-9]*/comm 2>/dev/null); do
            usleep 50000
        done
        thread=${thread%/comm}
        taskset -p $((1 << index)) "${thread##*/}" >/dev/null
    done
}
if [ "$guests" = 1 ]; then
    [ -z "$pin" ] || pin_vcpus &
    run_guest 1
else
    for index in $(seq 1 "$guests"); do
        run_guest "$index" | sed "s/^/$index: /" &
    done
    wait
fi
end "done"
