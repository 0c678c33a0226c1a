/* A chart as a whole: its style, its title and its parts in the order in which they are drawn. */
#include "plot/chart_drawing.h"

#include "core/file.h"

#include <limits.h>
#include <string.h>

enum { TITLE_LETTERS = 70 }; /* of a row of the title: as many as fit, estimated */

static const char style[] =
    "<style>\n"
    "  text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif; "
    "fill: #4a5160 }\n"
    "  .title { font-size: 16px; font-weight: 600; fill: #16191f } .value { font-size: 11px }\n"
    "  .ground, .marker.hollow, .paper { fill: #ffffff } .grid { stroke: #e4e7ec } .frame { stroke: #9aa2b1; fill: "
    "none }\n"
    "  .line, .key { fill: none; stroke: currentColor; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: "
    "round }\n"
    "  .dashed { stroke-width: 1.6; stroke-dasharray: 6 5 } .plain { stroke-width: 1.4 } .faint { stroke-width: 1; "
    "opacity: .35 }\n"
    "  .spread { stroke: currentColor; stroke-width: 1.2; fill: none } .band { fill: currentColor; opacity: .16 } "
    ".over { color: #16191f }\n"
    "  .ring { fill: none; stroke: currentColor; stroke-width: 2.4 }\n"
    "  .marker { fill: currentColor; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round }\n"
    "  .paper { stroke: #16191f; stroke-width: 1.5; stroke-linejoin: round }\n"
    "  .stripes { stroke: #ffffff; stroke-width: 2.4; opacity: .6 } .coloured { fill: currentColor }\n"
    "  .c1 { color: #7c8699 } .c2 { color: #1f6fd6 } .c3 { color: #c8580a } .c4 { color: #1a8454 } .c5 { color: "
    "#8446cf }\n"
    "  .c6 { color: #c92a4b } .c7 { color: #0a8490 } .c8 { color: #8a6d00 } .c9 { color: #b8409c }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    text { fill: #a9b2c1 } .title { fill: #eef1f6 } .over { color: #eef1f6 } .coloured { fill: currentColor }\n"
    "    .ground, .marker.hollow, .paper { fill: #12151b } .grid { stroke: #262c37 } .frame { stroke: #5b6575 }\n"
    "    .paper { stroke: #eef1f6 } .stripes { stroke: #12151b }\n"
    "    .c1 { color: #8f9aad } .c2 { color: #6bb0ff } .c3 { color: #ff9d54 } .c4 { color: #4fcf94 } .c5 { color: "
    "#bd93ff }\n"
    "    .c6 { color: #ff7d93 } .c7 { color: #45d0dc } .c8 { color: #e0bd3c } .c9 { color: #f08fd6 }\n"
    "  }\n"
    "</style>\n";

/* A long title is broken into rows, which move the rest of the picture down. Returns the bytes of the next row and
 * moves *rest after it; the last row that there is room for takes all. */
static size_t next_row(const char **rest, int row)
{
    const size_t size = row + 1 < TITLE_ROWS ? mr_row_bytes(*rest, TITLE_LETTERS) : strlen(*rest);
    *rest += size + ((*rest)[size] == ' ');
    return size;
}

static int title_rows(const char *title)
{
    int rows = 1;
    for (next_row(&title, 0); *title; rows++) next_row(&title, rows);
    return rows;
}

static void draw_title(mr_strbuf *svg, const char *title)
{
    mr_strbuf_add(svg, "<title>");
    mr_draw_escaped(svg, title, strlen(title), INT_MAX);
    mr_strbuf_add(svg, "</title>\n");
    mr_strbuf_add(svg, style);
    mr_strbuf_add(svg, MR_CHART_OLD_MARK "\n");
    for (int row = 0, rows = title_rows(title); row < rows; row++) {
        const char *text = title;
        const size_t size = next_row(&title, row);
        mr_strbuf_format(svg, "<text class=\"title\" x=\"%d\" y=\"%d\">", LEFT, TITLE_TOP + TITLE_ROW * row);
        mr_draw_escaped(svg, text, size, TITLE_LETTERS);
        mr_strbuf_add(svg, "</text>\n");
    }
}

static void draw_series(mr_drawing *d)
{
    for (int over = 0; over < 2; over++)
        for (size_t i = 0; i < d->chart->count; i++)
            if (mr_is_over(&d->chart->series[i]) == over) (d->chart->groups ? mr_draw_bars : mr_draw_line)(d, i);
}

void mr_chart_print(mr_strbuf *svg, const mr_chart *chart)
{
    const char *title = chart->title ? chart->title : "";
    const int down = TITLE_ROW * (title_rows(title) - 1);
    mr_drawing d = {.chart = chart,
                    .svg = svg,
                    .legend_top = LEGEND_TOP + down,
                    .top = TOP + down + LEGEND_ROW * (mr_legend_rows(chart) - 1)};
    const size_t points = mr_fit_spans(&d);
    if (d.top > BOTTOM - 100) d.top = BOTTOM - 100; /* more names than a legend can hold */
    mr_strbuf_format(svg,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                     "role=\"img\">\n" MR_CHART_MARK "\n",
                     WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_title(svg, title);
    mr_draw_axes(&d);
    draw_series(&d);
    mr_draw_legend(&d);
    if (!points)
        mr_strbuf_format(svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">nothing measured yet</text>\n",
                         (LEFT + RIGHT) / 2, (d.top + BOTTOM) / 2);
    mr_strbuf_add(svg, "</svg>\n");
}

int mr_chart_write(const char *path, const mr_chart *chart, mr_error *err)
{
    mr_strbuf svg = {0};
    mr_chart_print(&svg, chart);
    int status = svg.failed ? mr_no_memory(err, "a picture") : mr_file_replace(path, svg.data, svg.size, err);
    mr_strbuf_free(&svg);
    return status;
}
