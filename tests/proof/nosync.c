/* For the control arm: a libc whose syncs do nothing and say that all is well. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

int fsync(int fd) { (void)fd; return 0; }
int fdatasync(int fd) { (void)fd; return 0; }
int syncfs(int fd) { (void)fd; return 0; }
void sync(void) {}
int sync_file_range(int fd, off64_t offset, off64_t count, unsigned int flags)
{
    (void)fd; (void)offset; (void)count; (void)flags;
    return 0;
}
