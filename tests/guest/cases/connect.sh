# Discovery, connect, Identify; identity that stays; names that are not served.
nvme discover $AT >/tmp/found || fail "discover"
cat /tmp/found
grep -q "subnqn:  *$NQN\$" /tmp/found || fail "the subsystem is not in the discovery log"
grep -q "trtype:  *tcp" /tmp/found && grep -q "trsvcid: *$PORT" /tmp/found || fail "wrong address in the discovery log"

connect
nvme list
nvme id-ctrl "$DEV" >/tmp/ctrl
nvme id-ns "$DEV" >/tmp/ns
nvme ns-descs "$DEV" >/tmp/descs
cat /tmp/ctrl /tmp/ns /tmp/descs
[ "$(field /tmp/ctrl subnqn)" = "$NQN" ] || fail "subnqn"
[ $(($(field /tmp/ctrl kas))) -gt 0 ] || fail "kas"
[ "$(field /tmp/ctrl mdts)" -ge 8 ] || fail "mdts: below 1 MiB"
[ "$(field /tmp/ctrl ioccsz)" -ge 4 ] && [ "$(field /tmp/ctrl iorcsz)" -ge 1 ] && [ "$(field /tmp/ctrl icdoff)" = 0 ] || fail "capsules"
[ "$(field /tmp/ctrl cntrltype)" = 1 ] || fail "cntrltype"
[ $(($(field /tmp/ctrl oncs) & 0xd)) = 13 ] || fail "oncs: Compare, Dataset Management, Write Zeroes"
[ $(($(field /tmp/ctrl vwc) & 1)) = 1 ] || fail "vwc"
[ "$(field /tmp/ctrl cntlid | sed 's/^0x//')" = "$(printf %x "$(cat /sys/class/nvme/$CTRL/cntlid)")" ] || fail "cntlid"
[ $(($(field /tmp/ns nsze) * 4096)) = $(($(cat /sys/block/${DEV#/dev/}/size) * 512)) ] || fail "nsze"
[ "$(cat /sys/block/${DEV#/dev/}/queue/logical_block_size)" = 4096 ] || fail "block size"
grep -q "uuid" /tmp/descs && grep -q "nguid" /tmp/descs || fail "no UUID or no NGUID"
serial=$(field /tmp/ctrl sn)
[ -n "$serial" ] || fail "no serial number"
nvme list-ns "$DEV" >/tmp/list
grep -q '0x1$' /tmp/list || fail "list-ns"
disconnect

# The same drive after a restart of the target is the same namespace.
cp /tmp/descs /tmp/descs.before
host kill
host serve
connect
nvme ns-descs "$DEV" | cmp - /tmp/descs.before || fail "other identifiers after a restart"
nvme id-ctrl "$DEV" >/tmp/ctrl
[ "$(field /tmp/ctrl sn)" = "$serial" ] || fail "other serial number after a restart"
disconnect

refused "" nvme connect $AT -n "$NQN-not-there"
nvme connect $AT -n nqn.2014-08.org.nvmexpress.discovery || fail "a discovery controller that stays"
[ -n "$(controllers nqn.2014-08.org.nvmexpress.discovery)" ] || fail "no discovery controller"
