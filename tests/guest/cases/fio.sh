# fio writes and verifies CRC-32C in each block, at queue depth 16, both digests on.
connect --hdr-digest --data-digest
for engine in libaio io_uring; do
    run_fio --filename="$DEV" --ioengine=$engine --rw=randrw --bsrange=4k-256k --blockalign=4k --iodepth=16 --size=8M \
        --verify=crc32c --verify_fatal=1 --do_verify=1
done
run_fio --filename="$NG" --direct=0 --ioengine=io_uring_cmd --cmd_type=nvme --rw=randrw --bsrange=4k-128k --blockalign=4k --iodepth=16 --size=6M \
    --verify=crc32c --verify_fatal=1 --do_verify=1
# What one engine wrote, another verifies.
run_fio --filename="$DEV" --ioengine=libaio --rw=write --bs=64k --iodepth=16 --size=4M --offset=16M --verify=crc32c --do_verify=0
run_fio --filename="$NG" --direct=0 --ioengine=io_uring_cmd --cmd_type=nvme --rw=read --bs=64k --iodepth=16 --size=4M --offset=16M --verify=crc32c
# Trims among writes.
run_fio --filename="$DEV" --ioengine=libaio --rw=randtrimwrite --bs=16k --iodepth=4 --size=1M --offset=24M
