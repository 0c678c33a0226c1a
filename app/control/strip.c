/* The film strip: frames side by side, each with the body's parts and the ground. */
#include "control/strip.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/strbuf.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { FRAME = 120, HEIGHT = 180, GROUND = 150 };
#define PIXELS 70.0 /* a metre */
#define MADE_BY "<!-- made by minrnn rollout -->"

static void drop_every_second(mr_strip *s)
{
    for (int i = 1; 2 * i < s->frames; i++) {
        memcpy(s->parts[i], s->parts[2 * i], sizeof s->parts[i]);
        s->count[i] = s->count[2 * i];
    }
    s->frames = (s->frames + 1) / 2;
    s->every *= 2;
}

void mr_strip_film(void *user, const mr_env *env, int step)
{
    mr_strip *s = user;
    if (step % s->every) return;
    if (s->frames == MR_STRIP_FRAMES) drop_every_second(s);
    if (step % s->every) return;
    s->count[s->frames] = mr_env_parts(env, s->parts[s->frames], MR_STRIP_PARTS);
    s->frames++;
}

int mr_strip_check(const char *path, mr_error *err)
{
    struct stat about;
    char *text = NULL;
    size_t size;
    if (stat(path, &about)) return 0; /* there is none, or writing it will say what is wrong */
    if (!S_ISREG(about.st_mode))
        return mr_fail(err, MR_EDATA, "--strip %.600s: is %s; name a file", path,
                       S_ISDIR(about.st_mode) ? "a directory" : "not a regular file");
    const int own = !mr_file_read(path, 1 << 20, &text, &size, NULL) && strstr(text, MADE_BY);
    mr_free(text);
    if (own) return 0;
    return mr_fail(err, MR_EDATA, "--strip %.600s: exists, and is not a film strip of minrnn; name another file", path);
}

/* The middle of the body stands in the middle of its frame. */
static double middle(const mr_strip *s, int frame)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < s->count[frame]; i++) {
        const double *p = s->parts[frame][i];
        low = fmin(low, fmin(p[0], p[2])), high = fmax(high, fmax(p[0], p[2]));
    }
    return s->count[frame] ? (low + high) / 2 : 0;
}

static void add_frame(mr_strbuf *out, const mr_strip *s, int frame)
{
    const double x = FRAME * (frame + 0.5), centre = middle(s, frame);
    for (int i = 0; i < s->count[frame]; i++) {
        const double *p = s->parts[frame][i];
        mr_strbuf_format(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x + PIXELS * (p[0] - centre),
                         GROUND - PIXELS * p[1], x + PIXELS * (p[2] - centre), GROUND - PIXELS * p[3]);
    }
    mr_strbuf_format(out, "<text x=\"%.1f\" y=\"%d\" stroke=\"none\" fill=\"#444\">%.1f m</text>\n", x, HEIGHT - 10,
                     centre - middle(s, 0));
}

int mr_strip_write(const mr_strip *s, const mr_env_type *type, const char *path, mr_error *err)
{
    mr_strbuf out = {0};
    const int width = FRAME * (s->frames > 0 ? s->frames : 1);
    mr_strbuf_format(
        &out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n" MADE_BY
        "\n<title>%s, every %d steps; below, how far it has come</title>\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
        "<line x1=\"0\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#888\"/>\n"
        "<g stroke=\"#2563eb\" stroke-width=\"7\" stroke-linecap=\"round\" stroke-opacity=\"0.75\" "
        "font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n",
        width, HEIGHT, width, HEIGHT, type->title, s->every, width, HEIGHT, GROUND, width, GROUND);
    for (int i = 0; i < s->frames; i++) add_frame(&out, s, i);
    mr_strbuf_add(&out, "</g>\n</svg>\n");
    int status = out.failed ? mr_no_memory(err, path) : mr_file_replace(path, out.data, out.size, err);
    mr_strbuf_free(&out);
    return status;
}
