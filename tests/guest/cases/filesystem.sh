# A file system on the drive: made, filled, trimmed while mounted, taken along to a new connection, and checked.
connect --hdr-digest --data-digest
random /tmp/data 2097152
mke2fs -q -t ext4 -b 4096 "$DEV" 4096 || fail "mke2fs"
mkdir -p /tmp/mount
mount -t ext4 -o discard "$DEV" /tmp/mount || fail "mount"
for file in 1 2 3 4; do
    cp /tmp/data "/tmp/mount/$file" || fail "write"
done
sync
rm /tmp/mount/2
sync
fstrim -v /tmp/mount || fail "fstrim"
umount /tmp/mount || fail "umount"
disconnect
connect --hdr-digest --data-digest
e2fsck -fn "$DEV" || fail "e2fsck finds errors"
mount -t ext4 "$DEV" /tmp/mount || fail "mount again"
for file in 1 3 4; do
    cmp /tmp/data "/tmp/mount/$file" || fail "file $file differs"
done
[ ! -e /tmp/mount/2 ] || fail "file 2 is back"
umount /tmp/mount || fail "umount"
