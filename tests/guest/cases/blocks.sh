# dd writes and reads with every combination of digests, in several sizes.
random /tmp/data 1048576
for digests in "" "--hdr-digest" "--data-digest" "--hdr-digest --data-digest"; do
    # shellcheck disable=SC2086
    connect $digests
    for size in 4k 64k 1M; do
        put if=/tmp/data of="$DEV" bs=$size
        rm -f /tmp/back
        get if="$DEV" of=/tmp/back bs=256k count=4
        cmp /tmp/data /tmp/back || fail "digests '$digests', writes of $size"
        put if=/dev/zero of="$DEV" bs=1M count=1
    done
    # The last blocks of the namespace, and none behind them.
    last=$(($(cat /sys/block/${DEV#/dev/}/size) / 8 - 1))
    put if=/tmp/data of="$DEV" bs=4k count=1 seek=$last
    get if="$DEV" of=/tmp/back bs=4k count=1 skip=$last
    dd if=/tmp/data bs=4k count=1 2>/dev/null | cmp - /tmp/back || fail "last block"
    put if=/tmp/data of="$DEV" bs=1M
    sync
    disconnect
    connect
    rm -f /tmp/back
    get if="$DEV" of=/tmp/back bs=8k count=128
    cmp /tmp/data /tmp/back || fail "after a new connection"
    disconnect
done
