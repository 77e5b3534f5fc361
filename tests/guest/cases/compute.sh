# The product of two encrypted integers, by dd alone: the block that describes y goes to its place in the second half of the drive, then y to its
# own by one write, which runs the program. What is there afterwards is the product.
# With two guests at once, each has keys of its own.
key=${GUEST:-0}
for name in LBA BLOCKS METADATA_LBA Y_DATA Y_METADATA; do
    eval "$name=\$${name}_$key"
done
connect --hdr-digest --data-digest
echo "$Y_DATA" | base64 -d >/tmp/y.data
echo "$Y_METADATA" | base64 -d >/tmp/y.metadata
size=$((BLOCKS * 4096))
[ "$(stat -c %s /tmp/y.data)" = $size ] || fail "y has another size than its place"
put if=/tmp/y.metadata of="$DEV" bs=4096 seek="$METADATA_LBA"
dd if=/tmp/y.data of="$DEV" bs=$size seek=$((LBA * 4096)) oflag=direct,seek_bytes conv=notrunc || fail "write of y"
get if="$DEV" of=/tmp/metadata bs=4096 skip="$METADATA_LBA" count=1
dd if="$DEV" of=/tmp/data bs=$size skip=$((LBA * 4096)) count=1 iflag=direct,skip_bytes || fail "read of the product"
! cmp /tmp/y.data /tmp/data || fail "y is still there"
host product "$key" "$(base64 -w 0 /tmp/data)" "$(base64 -w 0 /tmp/metadata)" || fail "wrong product"

if [ "${GUEST:-}" ]; then
    # What the other host has is not for this one.
    host meet
    eval "other=\$LBA_$((1 - GUEST)) other_metadata=\$METADATA_LBA_$((1 - GUEST))"
    if dd if="$DEV" of=/tmp/other bs=$size skip=$((other * 4096)) count=1 iflag=direct,skip_bytes; then
        ! cmp /tmp/data /tmp/other || fail "the other's place shows this host's sample"
        tr -d '\000' </tmp/other | cmp - /dev/null || fail "this host sees the other's sample"
    fi
    if dd if=/tmp/y.metadata of="$DEV" bs=4096 seek="$other_metadata" oflag=direct conv=notrunc; then
        dd if=/tmp/y.data of="$DEV" bs=$size seek=$((other * 4096)) oflag=direct,seek_bytes conv=notrunc && fail "this host writes the other's sample"
    fi
    host meet
    rm /tmp/data
    get if="$DEV" of=/tmp/metadata bs=4096 skip="$METADATA_LBA" count=1
    dd if="$DEV" of=/tmp/data bs=$size skip=$((LBA * 4096)) count=1 iflag=direct,skip_bytes || fail "read of the product"
    host product "$key" "$(base64 -w 0 /tmp/data)" "$(base64 -w 0 /tmp/metadata)" || fail "the product is no longer there"
fi
