# Each host sees its own namespaces and no other's.
list() {
    nvme list-ns "/dev/$CTRL" | sed -n 's/.*]: *0x//p' | sort | paste -sd ' '
}
for host in FIRST:"1 2":2:7 SECOND:"1 7":7:2; do
    eval "nqn=\$${host%%:*}"
    host=${host#*:}
    seen=${host%%:*}
    own=$(echo "$host" | cut -d: -f2)
    hidden=$(echo "$host" | cut -d: -f3)
    connect --hostnqn="$nqn"
    [ "$(list)" = "$seen" ] || fail "$nqn sees $(list), expected $seen"
    wait_for 10 namespace "$CTRL" "$own" >/dev/null || fail "no namespace $own"
    ! namespace "$CTRL" "$hidden" || fail "namespace $hidden of the other host"
    # To this host it is a namespace that does not exist: its structure is zeroes.
    nvme admin-passthru "/dev/$CTRL" --opcode=0x06 --namespace-id="$hidden" --data-len=4096 --read --raw-binary >/tmp/hidden 2>/dev/null ||
        fail "identify of namespace $hidden"
    dd if=/dev/zero bs=4096 count=1 2>/dev/null | cmp - /tmp/hidden || fail "this host can see namespace $hidden"
    echo "$nqn" | dd of=/tmp/mine bs=4096 conv=sync 2>/dev/null
    put if=/tmp/mine of="/dev/$(namespace "$CTRL" "$own")" bs=4096
    get if="/dev/$(namespace "$CTRL" "$own")" of=/tmp/back bs=4096 count=1
    cmp /tmp/mine /tmp/back || fail "data differ"
    disconnect
done
