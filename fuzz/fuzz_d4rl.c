/* Fuzzes HDF5 files of offline reinforcement learning. Bytes must be refused with a message, or every step must belong
 * to one episode and be finite, whatever becomes of the process in which libhdf5 reads them. */
#include "control/d4rl.h"
#include "control/hdf5_file.h"
#include "core/mem.h"
#include "input.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum { LARGEST = 1 << 16 };

/* Returns 1 where it took so long that nothing else should be tried. */
static int check_set(const char *path)
{
    mr_d4rl set;
    mr_error err = {0};
    const int rc = mr_d4rl_load(path, &set, &err);
    must(!rc || (rc == err.status && err.text[0]), "an error says why");
    if (rc) return strstr(err.text, "found no end") != NULL;
    size_t next = 0;
    double sum = 0;
    for (size_t i = 0; i < set.episode_count; i++) {
        must(set.episodes[i].first == next && set.episodes[i].length > 0, "episodes follow each other");
        next += set.episodes[i].length;
    }
    must(next == set.steps, "every step is in an episode");
    for (size_t i = 0; i < set.steps * (size_t)set.observed; i++) sum += fabsf(set.observations[i]);
    for (size_t i = 0; i < set.steps * (size_t)set.acted; i++) sum += fabsf(set.actions[i]);
    must(isfinite(sum), "numbers are finite");
    mr_d4rl_free(&set);
    return 0;
}

/* What other readers use: any object's array, and attributes. */
static void check_parts(const char *path)
{
    mr_hdf5 *h;
    mr_error err = {0};
    double number, *numbers;
    size_t rows, columns;
    char text[8];
    if (mr_hdf5_open(path, &h, &err)) return;
    mr_hdf5_attribute(h, "/", "made_by", &number, &err);
    mr_hdf5_attribute(h, "/observations", "scale", &number, &err);
    mr_hdf5_attribute_text(h, "/observations", "scale", text, sizeof text, &err);
    mr_hdf5_attribute_text(h, "/group", "activation", text, sizeof text, &err);
    if (!mr_hdf5_read_doubles(h, "/group/weight", &numbers, &rows, &columns, &err)) mr_free(numbers);
    must(!mr_hdf5_has(h, "/group/absent") || mr_hdf5_has(h, "/group"), "what is in a group is in the file");
    mr_hdf5_close(h);
}

/* A process that reads a file may die of it, so what libFuzzer does when one dies is switched off in it: it must not
 * write down a finding, neither when it is told to nor by itself, which goes wrong in another folder. */
void __sanitizer_set_death_callback(void (*callback)(void));
static void be_a_reader(void)
{
    __sanitizer_set_death_callback(NULL);
    must(!chdir("/"), "there is a root");
}

/* libhdf5 wants a file with a real name; as_file's has none. */
static const char *as_named_file(const uint8_t *data, size_t size)
{
    static char path[64];
    if (!path[0]) {
        pthread_atfork(NULL, NULL, be_a_reader);
        snprintf(path, sizeof path, "/tmp/minrnn-fuzz-%ld.hdf5", (long)getpid());
    }
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    must(fd >= 0 && pwrite(fd, data, size, 0) == (ssize_t)size && !close(fd), "the input is a file");
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > LARGEST) return 0;
    const char *path = as_named_file(data, size);
    if (!check_set(path)) check_parts(path);
    unlink(path);
    return 0;
}
