/* Runs a command and has some of its calls on files fail, or ends it just before one of them:

       faulty CONTROL COMMAND [ARGUMENT ...]

   What is to happen is in the file CONTROL, which lib/faulty.py writes; it may change at any time. A broker makes its calls
   without the C library, so that no library that is loaded before it would see them: the kernel hands them over (seccomp's user
   notification, Linux 5.5 or newer; no root is needed), and a process beside the command answers.

   Ends with 125 and says why where the kernel does not do that. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "no such architecture is known here"
#endif

enum { READS = 1, WRITES = 2, SYNCS = 4, RENAMES = 8 };
enum { PATH_LEN = 4096, UNABLE = 125 };

/* The same as in lib/faulty.py. */
struct control {
    volatile uint8_t calls;    /* which calls; 0: none. Written last */
    volatile uint8_t error;    /* what they fail with; 0: the command is killed instead */
    volatile uint16_t unused;
    volatile uint32_t skip;    /* so many go well before */
    volatile uint32_t struck;  /* so many have not */
    volatile uint32_t unknown; /* of so many nobody could tell what file they were about */
    char pattern[1024];        /* what must be in the file's path */
};

static const struct { int call; uint8_t kind; int from, to; } CALLS[] = {
    {SYS_pread64, READS, 0, 0},   {SYS_preadv, READS, 0, 0},   {SYS_preadv2, READS, 0, 0},
    {SYS_pwrite64, WRITES, 0, 0}, {SYS_pwritev, WRITES, 0, 0}, {SYS_pwritev2, WRITES, 0, 0},
    {SYS_fsync, SYNCS, 0, 0},     {SYS_fdatasync, SYNCS, 0, 0},
#ifdef SYS_rename
    {SYS_rename, RENAMES, 0, 1},
#endif
#ifdef SYS_renameat
    {SYS_renameat, RENAMES, 1, 3},
#endif
    {SYS_renameat2, RENAMES, 1, 3},
};
enum { COUNT = sizeof CALLS / sizeof *CALLS };

static void unable(const char *what) {
    fprintf(stderr, "faulty: %s: %s\n", what, strerror(errno));
    exit(UNABLE);
}

static int install(void) {
    struct sock_filter code[4 + 2 * COUNT + 1];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[i].call, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = n, .filter = code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void send_descriptor(int socket, int descriptor) {
    char space[CMSG_SPACE(sizeof descriptor)] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    if (sendmsg(socket, &message, 0) != 1) unable("sendmsg");
}

static int receive_descriptor(int socket) {
    char space[CMSG_SPACE(sizeof(int))], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    int descriptor = -1;
    if (recvmsg(socket, &message, 0) != 1) exit(0); /* the other side has ended, and has said why */
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header) memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}

/* Whether the text at an address of another process has the pattern in it; -1 when it cannot be read. */
static int text_matches(pid_t pid, uint64_t address, const char *pattern) {
    char text[PATH_LEN + 1];
    size_t have = 0;
    while (have < PATH_LEN) { /* page by page: the one behind the text's end may not be there */
        size_t room = 4096 - ((address + have) & 4095);
        if (room > PATH_LEN - have) room = PATH_LEN - have;
        struct iovec local = {text + have, room}, remote = {(void *)(uintptr_t)(address + have), room};
        ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (got <= 0) break;
        if (memchr(text + have, 0, got)) return strstr(text, pattern) != NULL;
        have += got;
    }
    return -1;
}

static int descriptor_matches(pid_t pid, int descriptor, const char *pattern) {
    char link[64], path[PATH_LEN + 1];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, descriptor);
    ssize_t length = readlink(link, path, PATH_LEN);
    if (length < 0) return -1;
    path[length] = 0;
    return strstr(path, pattern) != NULL;
}

static int is_meant(struct control *control, const struct seccomp_notif *call) {
    for (int i = 0; i < COUNT; i++) {
        if (CALLS[i].call != call->data.nr) continue;
        if (!(control->calls & CALLS[i].kind)) return 0;
        const uint64_t *arguments = (const uint64_t *)call->data.args;
        int found = CALLS[i].kind != RENAMES ? descriptor_matches(call->pid, (int)arguments[0], control->pattern)
                                             : text_matches(call->pid, arguments[CALLS[i].from], control->pattern);
        if (found == 0 && CALLS[i].kind == RENAMES) found = text_matches(call->pid, arguments[CALLS[i].to], control->pattern);
        if (found < 0) control->unknown++;
        return found > 0;
    }
    return 0;
}

static void answer(int listener, struct control *control, pid_t command) {
    for (;;) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        if (poll(&ready, 1, -1) < 0 && errno != EINTR) return;
        if (!(ready.revents & POLLIN)) {
            if (ready.revents) return; /* the command has ended */
            continue;
        }
        struct seccomp_notif call = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue; /* who called is gone */
        struct seccomp_notif_resp response = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        if (control->calls && is_meant(control, &call)) {
            if (control->skip > 0) {
                control->skip--;
            } else {
                control->struck++;
                if (control->error == 0) {
                    control->calls = 0;
                    kill(command, SIGKILL);
                    continue; /* it never comes to this call */
                }
                response.flags = 0, response.error = -(int)control->error;
            }
        }
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: faulty CONTROL COMMAND [ARGUMENT ...]\n");
        return UNABLE;
    }
    int file = open(argv[1], O_RDWR | O_CLOEXEC), sockets[2];
    if (file < 0) unable(argv[1]);
    struct control *control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (control == MAP_FAILED) unable("mmap");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) unable("socketpair");
    /* The command stays the process that was started, so that who started it can wait for it and send it signals. */
    pid_t command = getpid(), beside = fork();
    if (beside < 0) unable("fork");
    if (beside == 0) {
        close(sockets[0]);
        signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN);
        int listener = receive_descriptor(sockets[1]);
        close(sockets[1]);
        /* Whoever reads what the command prints must see its end. */
        int nowhere = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++) dup2(nowhere, i);
        answer(listener, control, command);
        _exit(0);
    }
    close(sockets[1]);
    prctl(PR_SET_PTRACER, beside, 0, 0, 0); /* where Yama forbids reading the paths of renames otherwise */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) unable("prctl");
    int listener = install();
    if (listener < 0) unable("seccomp");
    send_descriptor(sockets[0], listener);
    close(listener);
    close(sockets[0]);
    execvp(argv[2], argv + 2);
    unable(argv[2]);
}
