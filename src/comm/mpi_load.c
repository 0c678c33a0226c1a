/* Finds the MPI plug-in and loads it. It is apart from the library, because MPI's binary interface differs between its
 * implementations: the plug-in is built where MPI is, and the library needs none. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "comm/engine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* RTLD_GLOBAL: Open MPI loads parts of itself, which look for its symbols among the global ones. */
static void *load(const char *path) { return dlopen(path, RTLD_NOW | RTLD_GLOBAL); }

static const char *const places[] = {"", "../lib/", "../lib64/", "minrnn/"};

/* The folder of the file that this code is in: the command or the library. A command that was found in PATH is known by
 * its bare name. Returns 0 if it cannot be told. */
static int own_folder(char *folder, size_t room)
{
    Dl_info info;
    if (!dladdr((const void *)places, &info) || !info.dli_fname) return 0;
    snprintf(folder, room, "%s", info.dli_fname);
    if (!strchr(folder, '/')) {
        const ssize_t length = readlink("/proc/self/exe", folder, room - 1);
        folder[length < 0 ? 0 : length] = 0;
    }
    char *end = strrchr(folder, '/');
    if (end) *end = 0;
    return end != NULL;
}

/* Beside this code, and where `make install` puts it. why: of the first one that is there and cannot be loaded. */
static void *load_near(char *why, size_t room)
{
    char folder[1024], path[1200];
    void *plugin = NULL;
    if (!own_folder(folder, sizeof folder)) return NULL;
    for (size_t i = 0; !plugin && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s%s", folder, places[i], MR_MPI_PLUGIN);
        if (access(path, F_OK)) continue;
        plugin = load(path);
        if (!plugin && !*why) snprintf(why, room, "%s", dlerror());
    }
    return plugin;
}

int mr_mpi_load_and_join(mr_comm **out, mr_error *err)
{
    const char *named = getenv("MINRNN_MPI");
    char why[400] = "";
    *out = NULL;
    void *plugin = named ? load(named) : load_near(why, sizeof why);
    if (!plugin && named) snprintf(why, sizeof why, "MINRNN_MPI: %s", dlerror());
    if (!plugin && !named) plugin = load(MR_MPI_PLUGIN);
    if (!plugin)
        return mr_fail(err, MR_EDEVICE,
                       "ranks: %s; it is built where mpicc is found (Debian: apt-get install libopenmpi-dev "
                       "openmpi-bin, then make again)",
                       *why ? why : "there is no " MR_MPI_PLUGIN " beside minrnn");
    mr_join_function *join;
    void *entry = dlsym(plugin, MR_MPI_ENTRY);
    memcpy(&join, &entry, sizeof join); /* ISO C has no cast from an object to a function */
    if (!join)
        return mr_fail(err, MR_EDEVICE, "ranks: %.300s is not minrnn's plug-in; build it again",
                       named ? named : MR_MPI_PLUGIN);
    return join(MR_VERSION, out, err);
}
