/* What test-host and login say to each other, on a SOCK_SEQPACKET socket.
 *
 *     login -> host   the command, with the far end of its input and output, and its standard error
 *     host -> login   how the command's process has ended, as wait(2) says it
 */
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { LONGEST_COMMAND = 128 << 10, PASSED = 2 };

static inline int unix_socket(const char *path, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address->sun_path) {
        errno = ENAMETOOLONG;
        die(path);
    }
    strcpy(address->sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    check("socket", fd);
    return fd;
}
