# DH-HMAC-CHAP: the host proves its secret, and the controller its own where the host asks; wrong and missing secrets are refused.
random /tmp/data 65536
connect --hostnqn="$ONE_WAY" --dhchap-secret="$SECRET"
put if=/tmp/data of="$DEV" bs=64k
nvme reset "/dev/$CTRL" || fail "reset"
wait_for 20 is_live "$CTRL" || fail "not live after a reset: authentication again"
disconnect
dmesg | grep -i "authenticated" || fail "the kernel did not authenticate"
connect --hostnqn="$BOTH_WAYS" --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$CONTROLLER_SECRET" --hdr-digest --data-digest
get if="$DEV" of=/tmp/back bs=64k count=1
cmp /tmp/data /tmp/back || fail "data differ"
disconnect

refused "" nvme connect $AT -n "$NQN" --hostnqn="$ONE_WAY" --dhchap-secret="$WRONG_SECRET"
refused "" nvme connect $AT -n "$NQN" --hostnqn="$ONE_WAY"
refused "" nvme connect $AT -n "$NQN" --hostnqn="$BOTH_WAYS" --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$WRONG_SECRET"
refused "" nvme connect $AT -n "$NQN" --hostnqn="$STRANGER" --dhchap-secret="$SECRET"
[ -z "$(controllers)" ] || fail "connected: $(controllers)"
connect --hostnqn="$ONE_WAY" --dhchap-secret="$SECRET"
get if="$DEV" of=/tmp/back bs=64k count=1
cmp /tmp/data /tmp/back || fail "data differ after refusals"
