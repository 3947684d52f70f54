/* Loaded with LD_PRELOAD: each start of a program takes two seconds more, as from a slow disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <time.h>
#include <unistd.h>

static void *slowly(const char *name)
{
    struct timespec seconds = {2, 0};
    nanosleep(&seconds, NULL);
    return dlsym(RTLD_NEXT, name);
}

int execv(const char *path, char *const argv[])
{
    return ((int (*)(const char *, char *const[]))slowly("execv"))(path, argv);
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                const posix_spawnattr_t *, char *const[], char *const[]);
    real = (int (*)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                    const posix_spawnattr_t *, char *const[], char *const[]))slowly("posix_spawnp");
    return real(pid, file, actions, attributes, argv, envp);
}
