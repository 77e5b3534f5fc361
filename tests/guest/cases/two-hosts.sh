# Two machines use the drive at the same time, with data that each verifies; then each reads what the other wrote.
connect --hdr-digest --data-digest
host meet
fio --name=verify --filename="$DEV" --direct=1 --ioengine=libaio --rw=randrw --bsrange=4k-64k --blockalign=4k --iodepth=16 --size=8M \
    --offset=$((GUEST * 16))M --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal >/tmp/fio.out 2>&1 || { cat /tmp/fio.out; fail "fio"; }
yes "$GUEST, $NQN" | dd of=/tmp/mine bs=64k count=1 iflag=fullblock 2>/dev/null
yes "$((1 - GUEST)), $NQN" | dd of=/tmp/other bs=64k count=1 iflag=fullblock 2>/dev/null
put if=/tmp/mine of="$DEV" bs=64k seek=$((512 + GUEST))
host meet
get if="$DEV" of=/tmp/back bs=64k skip=$((513 - GUEST)) count=1
cmp /tmp/other /tmp/back || fail "what the other host wrote is not there"
[ "$(cat /sys/class/nvme/$CTRL/cntlid)" != 0 ] || fail "no controller identifier"
host meet
