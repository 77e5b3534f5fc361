# The standard's way to compute: the program is loaded, activated and executed on memory namespaces, by nvme-cli alone. x is on the drive.
PROGRAMS=65536 MEMORY=65537
connect --hdr-digest --data-digest
C=/dev/$CTRL
for nsid in $PROGRAMS $MEMORY; do
    wait_for 20 namespace "$CTRL" $nsid >/dev/null || fail "no namespace $nsid"
done
device() {
    local block
    block=$(namespace "$CTRL" "$1")
    echo "/dev/ng${block#nvme}"
}
P=$(device $PROGRAMS) M=$(device $MEMORY)
wait_for 5 test -c "$P" && wait_for 5 test -c "$M" || fail "no $P, $M"
# memory OPCODE BYTE LENGTH OPTIONS...: a command on the memory namespace.
memory() {
    local opcode=$1 at=$2 length=$3
    shift 3
    nvme io-passthru "$M" --opcode="$opcode" --namespace-id=$MEMORY --cdw10="$at" --cdw12="$length" "$@" || fail "memory command $opcode"
}
# le BYTES NUMBER: a little-endian number.
le() {
    local n
    for n in $(seq 0 $(($1 - 1))); do
        # shellcheck disable=SC2059
        printf "\\$(printf %03o $(($2 >> n * 8 & 255)))"
    done
}

echo "$PROGRAM" | base64 -d >/tmp/program
{
    echo "$Y_METADATA_0" | base64 -d | head -c 64
    echo "$Y_DATA_0" | base64 -d
} >/tmp/y
size=$(stat -c %s /tmp/program) length=$(stat -c %s /tmp/y)
load() {
    nvme admin-passthru "$C" --opcode=0x85 --namespace-id=$PROGRAMS --cdw10=$((3 | 0xC0 << 16 | 1 << 25)) --cdw11="$size" --cdw14="$size" \
        --data-len="$size" --write --input-file=/tmp/program
}
activation() {
    nvme admin-passthru "$C" --opcode=0x88 --namespace-id=$PROGRAMS --cdw10=$((3 | $1 << 16))
}
execute() {
    nvme io-passthru "$P" --opcode=1 --namespace-id=$PROGRAMS --cdw2=$((1 << 16 | 3)) --cdw10=1 --cdw12=2
}

refused "7d0" execute
load || fail "load"
refused "7d2" execute
activation 1 || fail "activate"
memory 5 0 "$length" --data-len="$length" --write --input-file=/tmp/y
memory 2 0 "$length" --data-len="$length" --read --raw-binary >/tmp/back 2>/dev/null
cmp /tmp/y /tmp/back || fail "memory has something else"
for start in 0 65536; do
    le 4 $MEMORY
    le 4 32768
    le 8 $start
    le 8 0
    le 8 0
done >/tmp/ranges
nvme admin-passthru "$C" --opcode=0x89 --namespace-id=$PROGRAMS --cdw11=2 --data-len=64 --write --input-file=/tmp/ranges || fail "range set"
execute || fail "execute"
memory 2 65536 "$length" --data-len="$length" --read --raw-binary >/tmp/product 2>/dev/null
head -c 64 /tmp/product >/tmp/metadata
tail -c +65 /tmp/product >/tmp/data
host product 0 "$(base64 -w 0 /tmp/data)" "$(base64 -w 0 /tmp/metadata)" || fail "wrong product"

# Log pages and Identify.
nvme get-log "$C" --namespace-id=$PROGRAMS --log-id=0x82 --log-len=1088 --raw-binary >/tmp/programs || fail "program list"
[ "$(od -An -tx1 -j256 -N2 /tmp/programs | tr -d ' ')" = 0dc0 ] || fail "program list: $(od -An -tx1 -j256 -N16 /tmp/programs)"
nvme get-log "$C" --namespace-id=$PROGRAMS --log-id=0x84 --log-len=160 --raw-binary >/tmp/sets || fail "range sets"
tail -c 64 /tmp/sets | cmp - /tmp/ranges || fail "range sets"
nvme admin-passthru "$C" --opcode=0x06 --namespace-id=$PROGRAMS --cdw10=5 --cdw11=0x04000000 --data-len=4096 --read --raw-binary \
    >/tmp/identify 2>/dev/null || fail "identify"
[ "$(od -An -tx1 -N4 /tmp/identify | tr -d ' ')" = 10004000 ] || fail "identify: $(od -An -tx1 -N4 /tmp/identify)"

# Copy and Fill; what goes goes.
{
    le 4 $MEMORY
    le 4 0
    le 8 0
    le 4 "$length"
    le 4 0
    le 8 0
} >/tmp/source
nvme io-passthru "$M" --opcode=1 --namespace-id=$MEMORY --cdw2="$length" --cdw10=131072 --cdw12=$((4 << 8)) --data-len=32 --write \
    --input-file=/tmp/source || fail "copy"
memory 4 0 "$length"
memory 2 131072 "$length" --data-len="$length" --read --raw-binary >/tmp/back 2>/dev/null
cmp /tmp/y /tmp/back || fail "the copy is something else"
memory 2 0 "$length" --data-len="$length" --read --raw-binary 2>/dev/null | tr -d '\000' | cmp - /dev/null || fail "not filled"
activation 0 || fail "deactivate"
nvme admin-passthru "$C" --opcode=0x85 --namespace-id=$PROGRAMS --cdw10=$((3 | 1 << 24)) || fail "unload"
nvme admin-passthru "$C" --opcode=0x89 --namespace-id=$PROGRAMS --cdw10=$((1 | 1 << 16)) || fail "delete"
