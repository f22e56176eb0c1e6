/* A disk that takes 4 ms to confirm a write, as many do: loaded before everything else (LD_PRELOAD). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static int slowly(const char *name, int file)
{
    const struct timespec rest = {0, 4000000};
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    nanosleep(&rest, 0);
    return sync(file);
}

int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
