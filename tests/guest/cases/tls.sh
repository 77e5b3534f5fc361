# TLS 1.3 with pre-shared keys: tlshd makes the handshakes, and the kernel encrypts. Wrong keys, and none, are refused. SHA-256 alone: tlshd 1.0
# offers every key with a binder of SHA-256.
in_tls() {
    local program=$1
    shift
    /opt/tls/loader --library-path /opt/tls/lib "/opt/tls/bin/$program" "$@"
}
nvme() { in_tls nvme "$@"; }
# insert HOST KEY VERSION: derives a host's key for the subsystem, and gives it to the kernel.
insert() {
    nvme check-tls-key --identity="$3" --hostnqn="$1" --subsysnqn="$NQN" --keydata="$2" --insert >/tmp/inserted 2>&1 ||
        fail "check-tls-key: $(cat /tmp/inserted)"
}

printf '[authenticate]\nkeyrings=.nvme\n' >/tmp/tlshd.conf
in_tls tlshd --config /tmp/tlshd.conf --stderr >/tmp/tlshd.log 2>&1 &
tlshd=$!
sleep 1
kill -0 "$tlshd" || fail "tlshd: $(cat /tmp/tlshd.log)"

random /tmp/data 65536
insert "$OWN_HOST" "$OWN_KEY" 1
connect --hostnqn="$OWN_HOST" --tls || fail "no connection: $(cat /tmp/tlshd.log; dmesg | tail)"
put if=/tmp/data of="$DEV" bs=64k
run_fio --filename="$DEV" --ioengine=libaio --rw=randrw --iodepth=16 --offset=8M --size=4M --bsrange=4k-128k --verify=crc32c --verify_fatal=1
nvme reset "/dev/$CTRL" || fail "reset"
wait_for 20 is_live "$CTRL" || fail "not live after a reset: handshakes again"
get if="$DEV" of=/tmp/back bs=64k count=1
cmp /tmp/data /tmp/back || fail "data differ"
# A target that is gone for a while: the kernel makes new handshakes by itself.
host kill
wait_for 20 sh -c "! grep -qx live /sys/class/nvme/$CTRL/state" || fail "still live"
host serve
wait_for 40 is_live "$CTRL" || fail "no reconnection"
get if="$DEV" of=/tmp/back bs=64k count=1
cmp /tmp/data /tmp/back || fail "data differ after a reconnection"
disconnect

connect --hostnqn="$OWN_HOST" --tls --hdr-digest --data-digest || fail "no connection with digests"
get if="$DEV" of=/tmp/back bs=64k count=1
cmp /tmp/data /tmp/back || fail "data differ with digests"
disconnect

# Identity version 1 holds a digest of the key, so a wrong key is an unknown one; with version 0 the handshake itself fails.
insert "$WRONG_HOST" "$WRONG_KEY" 1
refused "" nvme connect $AT -n "$NQN" --hostnqn="$WRONG_HOST" --tls
wait_for 10 host refusals 1 || fail "the wrong key was not offered"
insert "$WRONG_HOST_0" "$WRONG_KEY" 0
refused "" nvme connect $AT -n "$NQN" --hostnqn="$WRONG_HOST_0" --tls
wait_for 10 host refusals 2 || fail "the wrong key of version 0 was not offered"
refused "" nvme connect $AT -n "$NQN" --hostnqn="$OWN_HOST"
[ -z "$(controllers)" ] || fail "connected: $(controllers)"
connect --hostnqn="$OWN_HOST" --tls || fail "no connection after refusals"
get if="$DEV" of=/tmp/back bs=64k count=1
cmp /tmp/data /tmp/back || fail "data differ after refusals"
