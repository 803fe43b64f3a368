/* Files that appear together. */
#include "outputs.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int cli_output_try(const char *path)
{
    woi_outfile *out = NULL;
    wo_error err;
    const wo_status status = woi_outfile_create(path, &out, &err);
    woi_outfile_free(out);
    return status ? cli_fail(path, &err) : CLI_OK;
}

int cli_output_try_checkpoint(const char *path, const char *checkpoint)
{
    woi_outfile *out = NULL;
    wo_error why, err;
    const wo_status status = woi_outfile_create(checkpoint, &out, &why);
    woi_outfile_free(out);
    if (!status) return CLI_OK;
    cli_set_error(&err, status, "its checkpoint: %.200s", why.text);
    return cli_fail(path, &err);
}

/* What mkdir would say of a folder that is not there: 0, or its errno. */
static int refusal_of(const char *folder)
{
    char parent[PATH_MAX];
    size_t n = strlen(folder);
    struct stat about;
    while (n > 1 && folder[n - 1] == '/') n--;
    while (n > 0 && folder[n - 1] != '/') n--;
    if (n >= sizeof parent) return ENAMETOOLONG;
    snprintf(parent, sizeof parent, "%.*s", n ? (int)n : 1, n ? folder : ".");
    if (stat(parent, &about) != 0) return errno;
    if (!S_ISDIR(about.st_mode)) return ENOTDIR;
    return access(parent, W_OK | X_OK) != 0 ? errno : 0;
}

int cli_output_try_folder(const char *folder, const char *const *names)
{
    struct stat about;
    wo_error err;
    int code = CLI_OK;
    if (stat(folder, &about) != 0) {
        const int why = errno == ENOENT ? refusal_of(folder) : errno;
        if (!why) return CLI_OK;
        cli_set_error(&err, WO_ERR_IO, "the folder cannot be made: %s", strerror(why));
        return cli_fail(folder, &err);
    }
    if (!S_ISDIR(about.st_mode)) {
        cli_set_error(&err, WO_ERR_IO, "exists and is not a folder");
        return cli_fail(folder, &err);
    }
    for (int i = 0; !code && names[i]; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", names[i]);
        code = cli_output_try(path);
    }
    return code;
}

wo_status cli_outputs_fail(cli_outputs *outputs, const char *path, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(outputs->err.text, sizeof outputs->err.text, format, args);
    va_end(args);
    outputs->at = path;
    return WO_ERR_FORMAT;
}

wo_status cli_outputs_name(cli_outputs *outputs, const char *start, const char *joint, const char *end)
{
    const size_t room = strlen(start) + strlen(joint) + strlen(end) + 1;
    char *path = malloc(room);
    if (!path) return cli_outputs_fail(outputs, start, "out of memory");
    snprintf(path, room, "%s%s%s", start, joint, end);
    outputs->path[outputs->n++] = path;
    return WO_OK;
}

wo_status cli_outputs_open(cli_outputs *outputs, const char *folder, const char *const *names)
{
    struct stat about;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return cli_outputs_fail(outputs, folder, "the folder cannot be made: %s", strerror(errno));
    if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode))
        return cli_outputs_fail(outputs, folder, "exists and is not a folder");
    wo_status status = WO_OK;
    const char *joint = folder[strlen(folder) - 1] == '/' ? "" : "/";
    for (int i = 0; !status && names[i]; i++) status = cli_outputs_name(outputs, folder, joint, names[i]);
    return status;
}

wo_status cli_outputs_create(cli_outputs *outputs, int i)
{
    outputs->at = outputs->path[i];
    return woi_outfile_create(outputs->path[i], &outputs->file[i], &outputs->err);
}

/* Removes what was not committed. */
static void drop(cli_outputs *outputs)
{
    for (int i = 0; i < outputs->n; i++) {
        woi_outfile_free(outputs->file[i]);
        woi_st_writer_free(outputs->st[i]);
        outputs->file[i] = NULL;
        outputs->st[i] = NULL;
    }
}

/* One step of all files: these functions, of plain files and of the others. */
static wo_status step(cli_outputs *outputs, wo_status (*of_file)(woi_outfile *, wo_error *),
                      wo_status (*of_st)(woi_st_writer *, wo_error *))
{
    wo_status status = WO_OK;
    for (int i = 0; !status && i < outputs->n; i++) {
        outputs->at = outputs->path[i];
        if (outputs->file[i]) status = of_file(outputs->file[i], &outputs->err);
        if (outputs->st[i]) status = of_st(outputs->st[i], &outputs->err);
    }
    return status;
}

wo_status cli_outputs_commit(cli_outputs *outputs)
{
    sigset_t before;
    wo_status status = step(outputs, woi_outfile_sync, woi_st_sync); /* the disk may be full, or slow */
    if (status) return status;
    woi_outfiles_hold_signals(&before);
    status = step(outputs, woi_outfile_name, woi_st_name);
    if (!status) status = step(outputs, woi_outfile_commit, woi_st_finish);
    if (status) drop(outputs); /* with their temporary names */
    woi_outfiles_let_signals(&before);
    return status;
}

void cli_outputs_free(cli_outputs *outputs)
{
    drop(outputs);
    for (int i = 0; i < outputs->n; i++) free(outputs->path[i]);
}
