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

/* RTLD_GLOBAL: Open MPI loads parts of itself, which look for its symbols among the global ones. */
static void *load(const char *path) { return dlopen(path, RTLD_NOW | RTLD_GLOBAL); }

/* Beside the file that this code is in (the command or the library), and where `make install` puts it. */
static void *load_near(void)
{
    static const char *const places[] = {"", "../lib/", "../lib64/", "minrnn/"};
    char folder[1024], path[1200];
    Dl_info info;
    if (!dladdr((const void *)places, &info) || !info.dli_fname) return NULL;
    snprintf(folder, sizeof folder, "%s", info.dli_fname);
    char *end = strrchr(folder, '/');
    if (!end) return NULL;
    *end = 0;
    void *plugin = NULL;
    for (size_t i = 0; !plugin && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s%s", folder, places[i], MR_MPI_PLUGIN);
        plugin = load(path);
    }
    return plugin;
}

int mr_mpi_load_and_join(mr_comm **out, mr_error *err)
{
    const char *named = getenv("MINRNN_MPI");
    *out = NULL;
    void *plugin = named ? load(named) : load_near();
    if (!plugin && !named) plugin = load(MR_MPI_PLUGIN);
    if (!plugin) {
        const char *why = named ? dlerror() : NULL;
        return mr_fail(err, MR_EDEVICE,
                       "ranks: %s%s%.300s; it is built where mpicc is found (Debian: apt-get install libopenmpi-dev "
                       "openmpi-bin, then make again)",
                       named ? "" : "there is no " MR_MPI_PLUGIN " beside minrnn", named ? "MINRNN_MPI: " : "",
                       why ? why : "");
    }
    mr_join_function *join;
    void *entry = dlsym(plugin, MR_MPI_ENTRY);
    memcpy(&join, &entry, sizeof join); /* ISO C has no cast from an object to a function */
    if (!join) return mr_fail(err, MR_EDEVICE, "ranks: " MR_MPI_PLUGIN " is not minrnn's; build it again");
    return join(MR_VERSION, out, err);
}
