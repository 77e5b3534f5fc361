# The target stops answering for longer than Linux waits for a command: its commands time out, it connects again, and all goes on.
echo 3 >/sys/module/nvme_core/parameters/io_timeout
connect --reconnect-delay=1 --ctrl-loss-tmo=60 --keep-alive-tmo=4
random /tmp/data 1048576
put if=/tmp/data of="$DEV" bs=64k
begin_load 6M --bs=16k
host pause
wait_for 25 eval '! is_live "$CTRL"' || fail "no command timed out"
host resume
wait_for 30 is_live "$CTRL" || fail "no reconnection"
end_load "a pause"
get if="$DEV" of=/tmp/back bs=64k count=16
cmp /tmp/data /tmp/back || fail "data differ"
