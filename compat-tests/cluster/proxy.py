"""The network between the nodes of a cluster and their clients: a TCP proxy whose links can be cut.

A program of its own, so that it is as quick as Python is. It listens where the nodes say that they listen, and passes each
connection on to where they really do. Who has opened a connection is found out by its port: the process that has the other
end is one of the nodes, or else a client (named 0). Standard input has one command a line, as JSON:

    {"op": "nodes", "nodes": [1, 2, 3]}    these will be there
    {"op": "node", "node": 1, "pid": 4711, "ports": {"20001": 20002}}   node 1 is this process and listens at these ports
    {"op": "down", "node": 1}              nobody listens there: connections are refused, as when the process has ended
    {"op": "cut", "from": [0, 2], "to": [1]}    nothing passes on connections that 0 or 2 opened to 1, and none are closed
    {"op": "heal"}                         what was cut passes again; connections that were cut are closed
    {"op": "reset", "node": 1}             all connections from and to node 1 are closed

Each is answered with one line once it has taken effect. A cut link behaves as a network that loses packets does: connections
stay open and silent, in both directions, and new ones get no answer.
"""
import asyncio
import json
import os
import re
import socket
import struct
import sys
from pathlib import Path

CHUNK = 256 << 10
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1


class Proxy:
    def __init__(self):
        self.pids, self.servers, self.pairs, self.cuts = {}, {}, set(), set()
        self.unknown = set()  # nodes that may run already, as processes that nobody has told yet
        self.passing = asyncio.Event()  # set whenever links may have changed

    def is_cut(self, source, target):
        return (source, target) in self.cuts

    async def carry_out(self, command):
        op = command["op"]
        if op == "nodes":
            self.unknown = set(command["nodes"])
        elif op == "node":
            node = command["node"]
            self.pids[node] = command["pid"]
            self.unknown.discard(node)
            for outer, inner in command["ports"].items():
                if (node, int(outer)) not in self.servers:
                    accept = lambda reader, writer, inner=inner: self.accept(node, inner, reader, writer)
                    self.servers[node, int(outer)] = await asyncio.start_server(accept, "127.0.0.1", int(outer), limit=CHUNK)
        elif op == "down":
            self.unknown.add(command["node"])
            for key in [key for key in self.servers if key[0] == command["node"]]:
                self.servers.pop(key).close()
        elif op == "cut":
            self.cuts |= {(source, target) for source in command["from"] for target in command["to"]}
        elif op == "heal":
            was_cut, self.cuts = self.cuts, set()
            self.close(lambda source, target: (source, target) in was_cut)
        elif op == "reset":
            self.close(lambda source, target: command["node"] in (source, target))
        self.passing.set()
        self.passing = asyncio.Event()

    def close(self, which):
        for pair in list(self.pairs):
            if which(pair[0], pair[1]):
                for writer in pair[2:]:
                    abort(writer)

    async def accept(self, node, inner, reader, writer):
        source = self.owner(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        pair = None
        try:
            while self.is_cut(source, node):
                await self.passing.wait()
                if not self.is_cut(source, node):
                    return
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", inner, limit=CHUNK)
            for end in (writer, target_writer):
                end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (source, node, writer, target_writer)
            self.pairs.add(pair)
            await asyncio.gather(self.pump(source, node, reader, target_writer), self.pump(source, node, target_reader, writer))
        except OSError:
            pass
        finally:
            self.pairs.discard(pair)
            abort(writer)
            if pair:
                abort(pair[3])

    async def pump(self, source, target, reader, writer):
        try:
            while data := await reader.read(CHUNK):
                while self.is_cut(source, target):
                    await self.passing.wait()
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            abort(writer)

    def owner(self, port, peer_port):
        """The node that has the other end of a connection, whose port this is; 0 when it is none."""
        inode = inode_of(port, peer_port)
        if inode is None:
            return 0  # it is gone already
        for node, pid in self.pids.items():
            if has_socket(pid, inode):
                return node
        # A node opens connections within milliseconds of its start, before anybody has told its process id. To look through all
        # processes takes long, and clients connect often.
        for pid in filter(str.isdigit, os.listdir("/proc") if self.unknown else ()):
            node = node_of(pid)
            if node in self.unknown and has_socket(pid, inode):
                return node
        return 0


def inode_of(port, peer_port):
    """The inode of the socket that has these ports on 127.0.0.1. Asked of the kernel directly (sock_diag): to read
    /proc/net/tcp takes it milliseconds."""
    address = socket.inet_aton("127.0.0.1") + bytes(12)
    wanted = struct.pack(">HH", port, peer_port) + address + address + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    body = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + wanted
    header = struct.pack("=IHHII", 16 + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as netlink:
        netlink.send(header + body)
        answer = netlink.recv(4096)
    kind, = struct.unpack_from("=H", answer, 4)
    if kind != SOCK_DIAG_BY_FAMILY:
        return None  # there is no such socket
    return struct.unpack_from("=I", answer, 16 + 4 + 48 + 16)[0] or None


def node_of(pid):
    """The node that a process is, by the name of its configuration; None when it is none."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return None
    found = re.search(r"/node-(\d+)/server\.properties\0", command)
    return int(found[1]) if found else None


def has_socket(pid, inode):
    wanted = f"socket:[{inode}]"
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(f"/proc/{pid}/fd/{name}") == wanted:
                    return True
            except OSError:
                continue
    except OSError:
        pass
    return False


def abort(writer):
    """Closes with a reset, as a process that ended does."""
    try:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    writer.transport.abort()


async def main():
    proxy = Proxy()
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        await proxy.carry_out(json.loads(line))
        print("done", flush=True)
    os._exit(0)  # whoever has started us is gone; connections need no goodbye


if __name__ == "__main__":
    asyncio.run(main())
