#!/usr/bin/env python3
"""Transcripts of DH-HMAC-CHAP with fixed random numbers, computed with nothing but Python's standard library.

Writes dhchap.txt, which the tests of src/auth compare with: python3 dhchap.py > dhchap.txt

Every line is `<hash>-<group>-<name> <hex>`. The host's secret is the bytes 00h, 01h, ... transformed with SHA-256, the controller's the
bytes FFh, FEh, ... used as they are, each as long as the hash's output. The controller draws its random numbers (challenge, sequence number,
exponent of 512 bits) from the bytes 1, 2, 3, ... modulo 251, the host (exponent, challenge, sequence number) from 101, 102, ... likewise.
"""
import hashlib
import hmac
import struct

HOST = b"nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
SUBSYSTEM = b"nqn.2026-01.org.example:drive"
T_ID = 0x1234
EXPONENT_BYTES = 64

HASHES = {"sha256": (1, hashlib.sha256), "sha384": (2, hashlib.sha384), "sha512": (3, hashlib.sha512)}
# RFC 7919, appendix A: number of bits and the X of the formula.
GROUPS = {
    "null": (0, 0, 0),
    "ffdhe2048": (1, 2048, 560316),
    "ffdhe3072": (2, 3072, 2625351),
    "ffdhe4096": (3, 4096, 5736041),
    "ffdhe6144": (4, 6144, 15705020),
    "ffdhe8192": (5, 8192, 10965728),
}


def euler(bits):
    """floor(2^bits * e)"""
    guard = 64
    total, term, k = 0, 1 << (bits + guard), 0
    while term:
        total += term
        k += 1
        term //= k
    return total >> guard


def prime(bits, x):
    return 2**bits - 2 ** (bits - 64) + (euler(bits - 130) + x) * 2**64 - 1


def stream(start):
    position = start
    while True:
        yield position % 251
        position += 1


def take(source, count):
    return bytes(next(source) for _ in range(count))


def response(digest, key, challenge, shared, sequence, label, first, second):
    if shared:
        challenge = hmac.new(digest(shared).digest(), challenge, digest).digest()
    message = challenge + struct.pack("<IHB", sequence, T_ID, 0) + label + first + b"\0" + second
    return hmac.new(key, message, digest).digest()


def transcript(hash_name, group_name):
    hash_id, digest = HASHES[hash_name]
    group_id, bits, x = GROUPS[group_name]
    hl = digest().digest_size
    size = bits // 8
    controller, host = stream(1), stream(101)

    secret = bytes(range(hl))
    host_key = hmac.new(secret, HOST + b"NVMe-over-Fabrics", hashlib.sha256).digest()
    controller_key = bytes(0xFF - i for i in range(hl))

    c1 = take(controller, hl)
    s1 = int.from_bytes(take(controller, 4), "little")
    public, host_public, shared = b"", b"", b""
    if bits:
        p = prime(bits, x)
        a = int.from_bytes(take(controller, EXPONENT_BYTES), "big")
        b = int.from_bytes(take(host, EXPONENT_BYTES), "big")
        public = pow(2, a, p).to_bytes(size, "big")
        host_public = pow(2, b, p).to_bytes(size, "big")
        shared = pow(2, a * b, p).to_bytes(size, "big")
    c2 = take(host, hl)
    s2 = int.from_bytes(take(host, 4), "little")

    r1 = response(digest, host_key, c1, shared, s1, b"HostHost", HOST, SUBSYSTEM)
    r2 = response(digest, controller_key, c2, shared, s2, b"Controller", SUBSYSTEM, HOST)

    negotiate = struct.pack("<BBHHBB", 0, 0x00, 0, T_ID, 0, 1)
    negotiate += struct.pack("<BBBB30s30s", 1, 0, 1, 1, bytes([hash_id]), bytes([group_id]))
    challenge = struct.pack("<BBHHBBBBHI", 1, 0x01, 0, T_ID, hl, 0, hash_id, group_id, size, s1) + c1 + public
    reply = struct.pack("<BBHHBBBBHI", 1, 0x02, 0, T_ID, hl, 0, 1, 0, size, s2) + r1 + c2 + host_public
    success1 = struct.pack("<BBHHBBB7s", 1, 0x03, 0, T_ID, hl, 0, 1, b"") + r2
    success2 = struct.pack("<BBHH10s", 1, 0x04, 0, T_ID, b"")
    messages = {
        "negotiate": negotiate,
        "challenge": challenge,
        "reply": reply,
        "success1": success1,
        "success2": success2,
    }
    for name, message in messages.items():
        print(f"{hash_name}-{group_name}-{name} {message.hex()}")


for hash_name, group_name in [
    ("sha256", "null"),
    ("sha512", "null"),
    ("sha256", "ffdhe2048"),
    ("sha384", "ffdhe3072"),
    ("sha512", "ffdhe4096"),
    ("sha256", "ffdhe6144"),
    ("sha384", "ffdhe8192"),
]:
    transcript(hash_name, group_name)
