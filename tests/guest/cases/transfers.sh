# The largest transfers: 1 MiB by one command, through passthru and through the block layer.
connect --hdr-digest --data-digest
echo "max_hw_sectors_kb $(cat /sys/block/${DEV#/dev/}/queue/max_hw_sectors_kb)"
[ "$(cat /sys/block/${DEV#/dev/}/queue/max_hw_sectors_kb)" -ge 1024 ] || fail "transfers below 1 MiB"
random /tmp/data 1048576
nvme write "$NG" -n 1 -s 256 -c 255 -z 1048576 -d /tmp/data || fail "write of 1 MiB"
nvme read "$NG" -n 1 -s 256 -c 255 -z 1048576 -d /tmp/back || fail "read of 1 MiB"
cmp /tmp/data /tmp/back || fail "1 MiB differs"
nvme io-passthru "$NG" --opcode=2 --namespace-id=1 --cdw10=256 --cdw12=255 --data-len=1048576 --read --raw-binary >/tmp/back 2>/dev/null ||
    fail "passthru of 1 MiB"
cmp /tmp/data /tmp/back || fail "1 MiB by passthru differs"
nvme compare "$NG" -n 1 -s 256 -c 255 -z 1048576 -d /tmp/data || fail "compare of 1 MiB"
echo 1024 >/sys/block/${DEV#/dev/}/queue/max_sectors_kb
get if="$DEV" of=/tmp/back bs=1M skip=1 count=1
cmp /tmp/data /tmp/back || fail "1 MiB by the block layer differs"
# A length that is not that of the blocks.
refused "sgl" nvme io-passthru "$NG" --opcode=2 --namespace-id=1 --cdw10=0 --cdw12=1 --data-len=4096 --read
refused "sgl" nvme io-passthru "$NG" --opcode=1 --namespace-id=1 --cdw10=0 --cdw12=3 --data-len=8192 --write --input-file=/tmp/data
is_live "$CTRL" || fail "the controller is $(cat /sys/class/nvme/$CTRL/state)"
