/* The page at /: its files are in serve/page, and in the program as they are. Paths are the project's, where make runs.
 */
#include "server.h"

#define FILE_AS(name, path)                                                                                   \
    __asm__(".pushsection .rodata\n.globl " #name "\n.hidden " #name "\n.globl " #name "_end\n.hidden " #name \
            "_end\n" #name ":\n.incbin \"" path "\"\n" #name "_end:\n.byte 0\n.popsection\n");                \
    extern const char name[], name##_end[]

FILE_AS(woi_page_html, "serve/page/index.html");
FILE_AS(woi_page_css, "serve/page/page.css");
FILE_AS(woi_page_js, "serve/page/page.js");

static void show(woi_reply *reply, const char *type, const char *from, const char *end)
{
    reply->status = 200;
    reply->type = type;
    reply->fixed = from;
    reply->fixed_bytes = (size_t)(end - from);
}

void woi_page(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)server;
    (void)request;
    show(reply, "text/html; charset=utf-8", woi_page_html, woi_page_html_end);
}

void woi_page_style(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)server;
    (void)request;
    show(reply, "text/css; charset=utf-8", woi_page_css, woi_page_css_end);
}

void woi_page_script(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)server;
    (void)request;
    show(reply, "text/javascript; charset=utf-8", woi_page_js, woi_page_js_end);
}
