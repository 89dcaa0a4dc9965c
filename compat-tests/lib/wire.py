"""Requests by hand, for the tests that must send wrong ones: enough of Kafka's encoding to write them, no more."""
import socket
import struct
import zlib

API_VERSIONS = 18
NULLABLE_NONE = -1


def int8(n): return struct.pack(">b", n)
def int16(n): return struct.pack(">h", n)
def int32(n): return struct.pack(">i", n)
def int64(n): return struct.pack(">q", n)


def string(text):
    return int16(NULLABLE_NONE) if text is None else int16(len(text.encode())) + text.encode()


def data(raw):
    return int32(NULLABLE_NONE) if raw is None else int32(len(raw)) + raw


def array(items):
    return int32(len(items)) + b"".join(items)


def unsigned_varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def varint(n):
    return unsigned_varint((n << 1) ^ (n >> 63))


def header(key, version, correlation=1, flexible=False):
    return int16(key) + int16(version) + int32(correlation) + string("abuse") + (b"\0" if flexible else b"")


def frame(body):
    return int32(len(body)) + body


def request(key, version, body=b"", correlation=1, flexible=False):
    return frame(header(key, version, correlation, flexible) + body)


def connect(address, limit_s=10):
    return socket.create_connection(address, limit_s)


def receive_exactly(connection, count):
    got = b""
    while len(got) < count:
        more = connection.recv(count - len(got))
        if not more:
            raise EOFError(f"closed after {len(got)} of {count} bytes")
        got += more
    return got


def receive(connection):
    """One answer: its bytes after the length."""
    return receive_exactly(connection, struct.unpack(">i", receive_exactly(connection, 4))[0])


def ask(address, key, version, body=b"", flexible=False, limit_s=10):
    with connect(address, limit_s) as connection:
        connection.sendall(request(key, version, body, 7, flexible))
        return receive(connection)


# Record batches

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(raw):
    crc = 0xFFFFFFFF
    for byte in raw:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def record(value, delta=0, key=None):
    body = b"\0" + varint(0) + varint(delta) + (varint(-1) if key is None else varint(len(key)) + key)
    body += varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(records, count=1, attributes=0, last_delta=None, magic=2, crc=None, length=None, timestamp=1_700_000_000_000):
    tail = int16(attributes) + int32(count - 1 if last_delta is None else last_delta) + int64(timestamp) * 2
    tail += int64(-1) + int16(-1) + int32(-1) + int32(count) + records
    head = int32(0) + int8(magic) + struct.pack(">I", crc32c(tail) if crc is None else crc)
    return int64(0) + int32(len(head + tail) if length is None else length) + head + tail


def gzipped(raw_chunks):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(chunk) for chunk in raw_chunks) + packer.flush()


def produce_body(topic, partition, records, acks=-1):
    """Of Produce versions 3 to 8."""
    return string(None) + int16(acks) + int32(10_000) + array([string(topic) + array([int32(partition) + data(records)])])


def produce_error(answer, topic):
    """The error code for the one partition in an answer to Produce version 7."""
    at = 4 + 4 + 2 + len(topic) + 4 + 4
    return struct.unpack(">h", answer[at:at + 2])[0]
