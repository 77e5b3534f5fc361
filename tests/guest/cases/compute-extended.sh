# The same on a namespace with metadata: y goes with 64 bytes behind each block through the character device, by one command.
connect --hdr-digest --data-digest
LBA=$LBA_0 BLOCKS=$BLOCKS_0
echo "$Y_EXTENDED_0" | base64 -d >/tmp/y
size=$((BLOCKS * 4160))
[ "$(stat -c %s /tmp/y)" = $size ] || fail "y has another size than its place"
nvme io-passthru "$NG" --opcode=1 --namespace-id=1 --cdw10="$LBA" --cdw12=$((BLOCKS - 1)) --data-len=$size --write --input-file=/tmp/y ||
    fail "write of y"
nvme io-passthru "$NG" --opcode=2 --namespace-id=1 --cdw10="$LBA" --cdw12=$((BLOCKS - 1)) --data-len=$size --read --raw-binary \
    >/tmp/back 2>/dev/null || fail "read of the product"
! cmp /tmp/y /tmp/back || fail "y is still there"
host product 0 "$(base64 -w 0 /tmp/back)" || fail "wrong product"
