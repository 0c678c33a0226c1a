/* Numbers and texts as written in an SVG file. */
#include "plot/chart_drawing.h"

#include "core/utf8.h"

#include <math.h>
#include <string.h>

enum { TEXT_CHARS = 84 }; /* longer texts are cut */

mr_label mr_pixel(double v)
{
    mr_label out = {0};
    mr_real_print(out.text, round(v * 10) / 10, 0);
    return out;
}

mr_label mr_brief(double v, int digits)
{
    mr_label out = {0};
    mr_brief_print(out.text, v, digits);
    return out;
}

static int is_control(uint32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xfffe || c == 0xffff; }

void mr_draw_escaped(mr_strbuf *svg, const char *s, size_t left, int most)
{
    for (int shown = 0; left; shown++) {
        uint32_t codepoint;
        int bytes = mr_utf8_read(s, left, &codepoint);
        if (shown == most) {
            mr_strbuf_add(svg, "…");
            return;
        }
        if (bytes <= 0) {
            bytes = 1;
            mr_strbuf_add(svg, "�");
        } else if (is_control(codepoint)) {
            mr_strbuf_add(svg, " ");
        } else if (codepoint == '&' || codepoint == '<' || codepoint == '>') {
            mr_strbuf_add(svg, codepoint == '&' ? "&amp;" : codepoint == '<' ? "&lt;" : "&gt;");
        } else {
            mr_strbuf_format(svg, "%.*s", bytes, s);
        }
        s += bytes;
        left -= (size_t)bytes;
    }
}

void mr_draw_text(mr_strbuf *svg, const char *attributes, const char *s)
{
    mr_strbuf_format(svg, "<text %s>", attributes);
    if (s) mr_draw_escaped(svg, s, strlen(s), TEXT_CHARS);
    mr_strbuf_add(svg, "</text>\n");
}

int mr_letters(const char *s)
{
    int count = 0;
    for (; s && *s; s++) count += ((unsigned char)*s & 0xc0) != 0x80;
    return count < TEXT_CHARS ? count : TEXT_CHARS;
}

size_t mr_row_bytes(const char *text, int most)
{
    size_t at = 0, blank = 0;
    for (int letters = 0; text[at]; at++) {
        letters += ((unsigned char)text[at] & 0xc0) != 0x80;
        if (text[at] == ' ') blank = at;
        if (letters > most) return blank ? blank : at;
    }
    return at;
}

double mr_fitting_size(double size, double room, int count)
{
    const double fits = room / (0.64 * count);
    return count && fits < size ? fits : size;
}
