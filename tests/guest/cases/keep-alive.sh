# The connection holds while every core of the host machine is busy, with other programs or with the drive's own bootstraps: Keep Alive is
# answered in time, with and without other traffic.
connect --keep-alive-tmo=5
cntlid=$(cat /sys/class/nvme/$CTRL/cntlid)
dmesg -c >/dev/null
host burn 30
sleep 8
run_fio --filename="$DEV" --ioengine=libaio --rw=randread --bs=4k --iodepth=16 --size=1M
sleep 2
host burnt || fail "the work that kept the machine busy"
is_live "$CTRL" || fail "the controller is $(cat /sys/class/nvme/$CTRL/state)"
[ "$(cat /sys/class/nvme/$CTRL/cntlid)" = "$cntlid" ] || fail "the connection was lost and made again"
! dmesg | grep -i "keep-alive\|reconnect\|timeout\|failed" || fail "the kernel complains"
