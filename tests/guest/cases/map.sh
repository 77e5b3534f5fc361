# Columns of a Linux block device: `toroid map` runs a program on one, by commands that the NVMe driver passes on to namespaces beside it.
connect --hdr-digest --data-digest
for nsid in 65536 65537; do
    wait_for 20 namespace "$CTRL" $nsid >/dev/null || fail "no namespace $nsid"
done
wget -q -O - "http://10.0.2.2:$ARCHIVE/toroid.tar" | tar x -C /tmp || fail "no program"
toroid() {
    /tmp/toroid/loader --library-path /tmp/toroid /tmp/toroid/toroid "$@"
}
echo "$EXCESS" | base64 -d >/tmp/excess.tasm
map() {
    toroid map "$DEV" /tmp/excess.tasm --input x=readings --output result --unit 16 --json
}
map >/tmp/first || fail "map: $(cat /tmp/first)"
grep -q '"computed": *40' /tmp/first || fail "$(cat /tmp/first)"
# It is complete, and nothing is computed again.
map >/tmp/again || fail "map again: $(cat /tmp/again)"
grep -q '"computed": *0' /tmp/again || fail "$(cat /tmp/again)"
disconnect
host excess || fail "wrong result"
