# Logs, features and admin commands of nvme-cli; what is not supported is refused with the right status and breaks nothing.
connect
for log in "smart-log" "error-log -e 4" "fw-log" "changed-ns-list-log" "effects-log" "supported-log-pages"; do
    echo "== $log"
    # shellcheck disable=SC2086
    nvme $log "/dev/$CTRL" >/tmp/log 2>&1 || { cat /tmp/log; fail "$log"; }
    cat /tmp/log
done
random /tmp/data 8388608
put if=/tmp/data of="$DEV" bs=1M
get if="$DEV" of=/tmp/back bs=1M count=8
nvme smart-log "/dev/$CTRL" >/tmp/log
cat /tmp/log
[ "$(field /tmp/log 'Data Units Written' | sed 's/ .*//')" -ge 16 ] || fail "smart-log does not count what is written"
[ "$(field /tmp/log 'Data Units Read' | sed 's/ .*//')" -ge 16 ] || fail "smart-log does not count what is read"
[ "$(field /tmp/log host_write_commands)" -ge 8 ] || fail "smart-log does not count commands"

for feature in 1 2 4 6 7 0xb 0xf; do
    nvme get-feature "/dev/$CTRL" -f $feature || fail "get-feature $feature"
done
nvme set-feature "/dev/$CTRL" -f 4 -v 0x150 || fail "set-feature 4"
nvme get-feature "/dev/$CTRL" -f 4 | grep -qi 0x0*150 || fail "feature 4 does not stay"
refused "invalid field\|feature" nvme get-feature "/dev/$CTRL" -f 0x7a
refused "invalid.*log" nvme get-log "/dev/$CTRL" -i 0xc5 -l 512
refused "invalid.*opcode" nvme admin-passthru "/dev/$CTRL" --opcode=0x7d
refused "invalid field" nvme admin-passthru "/dev/$CTRL" --opcode=0x06 --cdw10=0x77 --data-len=4096 --read
refused "invalid.*namespace" nvme admin-passthru "/dev/$CTRL" --opcode=0x06 --namespace-id=0xffffffff --data-len=4096 --read
refused "invalid.*opcode" nvme io-passthru "$DEV" --opcode=0x7d --namespace-id=1
# The I/O command that failed has an entry.
nvme error-log "/dev/$CTRL" -e 4 >/tmp/log
cat /tmp/log
grep -q 'error_count.*: 1$' /tmp/log && grep -qi 'status_field.*opcode' /tmp/log || fail "no entry in the error log"
nvme ns-rescan "/dev/$CTRL" || fail "ns-rescan"
for offset in 0 8 0x14 0x1c; do
    nvme get-property "/dev/$CTRL" -o $offset || fail "get-property $offset"
done
refused "invalid field" nvme get-property "/dev/$CTRL" -o 0xc
is_live "$CTRL" || fail "the controller is $(cat /sys/class/nvme/$CTRL/state)"
