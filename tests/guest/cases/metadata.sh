# A namespace with 64 bytes of metadata a block: extended LBAs through the character device. Linux makes its block device empty.
connect --hdr-digest --data-digest
nvme id-ns "$NG" -n 1 | tee /tmp/ns
grep -q "ms:64 .*lbads:12 .*in use" /tmp/ns || fail "format"
[ $(($(field /tmp/ns flbas) & 0x10)) = 16 ] || fail "flbas: not extended"
[ "$(cat /sys/block/${DEV#/dev/}/size)" = 0 ] || fail "the block device has a size"
# Five blocks of 4096 + 64 bytes. The vendor's register types stay clear: all metadata bytes zero is a plain block.
random /tmp/data 65536
for block in 0 1 2 3 4; do
    dd if=/tmp/data bs=4096 skip=$block count=1 2>/dev/null
    dd if=/dev/zero bs=64 count=1 2>/dev/null
done >/tmp/blocks
nvme io-passthru "$NG" --opcode=1 --namespace-id=1 --cdw10=40 --cdw12=4 --data-len=20800 --write --input-file=/tmp/blocks || fail "write"
nvme io-passthru "$NG" --opcode=2 --namespace-id=1 --cdw10=40 --cdw12=4 --data-len=20800 --read --raw-binary >/tmp/back 2>/dev/null || fail "read"
cmp /tmp/blocks /tmp/back || fail "five blocks differ"
nvme io-passthru "$NG" --opcode=2 --namespace-id=1 --cdw10=42 --cdw12=0 --data-len=4160 --read --raw-binary >/tmp/back 2>/dev/null || fail "read"
dd if=/tmp/blocks bs=4160 skip=2 count=1 2>/dev/null | cmp - /tmp/back || fail "one block differs"
refused "sgl" nvme io-passthru "$NG" --opcode=2 --namespace-id=1 --cdw10=42 --cdw12=0 --data-len=4096 --read
is_live "$CTRL" || fail "the controller is $(cat /sys/class/nvme/$CTRL/state)"
