/* wideout version */
#include "cli.h"

#include <jansson.h>
#include <zlib.h>

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

static int run(const cli_command *self, void *args, int n, char **rest)
{
    const cli_common *common = args;
    if (n > 0) return cli_usage(self, "takes no file, found '%s'", rest[0]);
    if (common->json)
        return cli_print_json(json_pack("{s:s, s:s, s:s, s:s}", "version", wo_version(), "compiler", COMPILER,
                                        "jansson", jansson_version_str(), "zlib", zlibVersion()));
    printf("wideout %s\nbuilt with %s; jansson %s, zlib %s\n", wo_version(), COMPILER, jansson_version_str(),
           zlibVersion());
    return cli_end();
}

const cli_command cli_cmd_version = {
    "version",
    "[options]",
    "the version of the tool and of what it was built with",
    "Prints the version of the tool, its compiler and the libraries it uses.",
    NULL,
    sizeof(cli_common),
    run,
};
