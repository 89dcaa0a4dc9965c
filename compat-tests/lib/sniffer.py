"""A TCP proxy that notes which versions of which APIs clients use. A program of its own:

    sniffer.py OUTER:INNER...

passes connections at each OUTER port of 127.0.0.1 on to INNER, until its standard input ends; then it prints one line for each
API and version that came by. Answers pass unseen, and of requests the length, key and version are all that is looked at.
"""
import asyncio
import os
import struct
import sys

CHUNK = 256 << 10
seen = set()
connections = set()  # asyncio itself keeps no hold of its tasks


class Watch:
    """Follows the frames in a stream of requests."""

    def __init__(self):
        self.head, self.skip = b"", 0

    def feed(self, data):
        at = 0
        while at < len(data):
            if self.skip:
                step = min(self.skip, len(data) - at)
                self.skip, at = self.skip - step, at + step
                continue
            take = 8 - len(self.head)
            self.head, at = self.head + data[at:at + take], at + take
            if len(self.head) == 8:
                length, key, version = struct.unpack(">ihh", self.head)
                if 0 <= key < 1000:
                    seen.add((key, version))
                self.head, self.skip = b"", max(0, length - 4)


async def pump(reader, writer, watch):
    try:
        while data := await reader.read(CHUNK):
            if watch:
                watch.feed(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def accept(inner, reader, writer):
    try:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", inner, limit=CHUNK)
    except OSError:
        writer.transport.abort()
        return
    connections.add(asyncio.current_task())
    await asyncio.gather(pump(reader, inner_writer, Watch()), pump(inner_reader, writer, None))
    connections.discard(asyncio.current_task())
    writer.close()
    inner_writer.close()


async def main():
    servers = []
    for pair in sys.argv[1:]:
        outer, inner = map(int, pair.split(":"))
        servers.append(await asyncio.start_server(lambda r, w, inner=inner: accept(inner, r, w), "127.0.0.1", outer, limit=CHUNK))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for key, version in sorted(seen):
        print(key, version)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
