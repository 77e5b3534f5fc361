# Compare, Write Zeroes, Dataset Management and Flush, through the block layer and through nvme-cli.
connect --hdr-digest --data-digest
random /tmp/data 2097152
dd if=/dev/zero of=/tmp/zeroes bs=1M count=2 2>/dev/null
put if=/tmp/data of="$DEV" bs=1M

# Blocks 64 to 127 by the block layer.
blkdiscard -z -o 262144 -l 262144 "$DEV" || fail "write zeroes by the block layer"
get if="$DEV" of=/tmp/back bs=64k skip=4 count=4
cmp -n 262144 /tmp/zeroes /tmp/back || fail "zeroed blocks"
get if="$DEV" of=/tmp/back bs=64k count=4
cmp -n 262144 /tmp/data /tmp/back || fail "blocks before the zeroed ones"

nvme write-zeroes "$DEV" -s 10 -c 4 || fail "nvme write-zeroes"
get if="$DEV" of=/tmp/back bs=4k skip=10 count=5
cmp -n 20480 /tmp/zeroes /tmp/back || fail "nvme write-zeroes: content"
get if="$DEV" of=/tmp/back bs=4k skip=15 count=1
dd if=/tmp/data bs=4k skip=15 count=1 2>/dev/null | cmp - /tmp/back || fail "nvme write-zeroes: block behind"
nvme dsm "$DEV" -d -s 20 -b 3 || fail "dsm"
get if="$DEV" of=/tmp/back bs=4k skip=20 count=3
cmp -n 12288 /tmp/zeroes /tmp/back || fail "deallocated blocks (DLFEAT says zeroes)"
nvme dsm "$DEV" -d -s 200,300 -b 2,1 || fail "dsm of two ranges"
blkdiscard -o 1048576 -l 65536 "$DEV" || fail "discard by the block layer"
get if="$DEV" of=/tmp/back bs=64k skip=16 count=1
cmp -n 65536 /tmp/zeroes /tmp/back || fail "discarded blocks"

put if=/tmp/data of="$DEV" bs=1M
dd if=/tmp/data of=/tmp/part bs=4k skip=7 count=8 2>/dev/null
nvme compare "$DEV" -s 7 -c 7 -z 32768 -d /tmp/part || fail "compare"
refused "compare" nvme compare "$DEV" -s 8 -c 7 -z 32768 -d /tmp/part
nvme flush "$DEV" || fail "flush"
sync

blocks=$(($(cat /sys/block/${DEV#/dev/}/size) / 8))
refused "out of range\|LBA_RANGE" nvme read "$DEV" -s "$blocks" -c 0 -z 4096 -d /tmp/none
refused "out of range\|LBA_RANGE" nvme read "$DEV" -s $((blocks - 1)) -c 1 -z 8192 -d /tmp/none
refused "out of range\|LBA_RANGE" nvme write-zeroes "$DEV" -s "$blocks" -c 0
refused "out of range\|LBA_RANGE" nvme dsm "$DEV" -d -s "$blocks" -b 1
is_live "$CTRL" || fail "the controller is $(cat /sys/class/nvme/$CTRL/state)"
get if="$DEV" of=/tmp/back bs=1M count=2
cmp /tmp/data /tmp/back || fail "content at the end"
