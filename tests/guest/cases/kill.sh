# The target dies without a word and comes back: Linux connects again, flushed data are there, and what was waiting goes on.
connect --hdr-digest --data-digest --reconnect-delay=1 --ctrl-loss-tmo=60
random /tmp/data 1048576
put if=/tmp/data of="$DEV" bs=64k
nvme flush "$DEV" || fail "flush"
begin_load 12M --bsrange=4k-64k --blockalign=4k
for turn in 1 2; do
    sleep 0.5
    host kill
    wait_for 20 eval '! is_live "$CTRL"' || fail "the loss of the target goes unnoticed"
    host serve
    wait_for 30 is_live "$CTRL" || fail "no reconnection"
done
end_load "the target's death"
get if="$DEV" of=/tmp/back bs=64k count=16
cmp /tmp/data /tmp/back || fail "flushed data differ"
nvme disconnect -d "$CTRL"

# Without a target there is nothing to connect to, and the machine says so at once.
host kill
refused "refused\|reset" nvme connect $AT -n "$NQN"
host serve
connect
get if="$DEV" of=/tmp/back bs=64k count=16
cmp /tmp/data /tmp/back || fail "flushed data differ after the second start"
