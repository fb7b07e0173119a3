// Opening files beneath a folder without leaving it.
//
// The content of a folder may come from a stranger: a name in it may be a symbolic link, lead outside by "..", or be a pipe on which
// opening waits forever. Here a path is relative to the descriptor of a folder that the caller trusts, and only a regular file
// beneath that folder is opened:
//
//     openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)     Linux 5.6 and later
//     openat(O_NOFOLLOW) for each component                                      where that is missing or forbidden
//
#pragma once

#include <string>

#include "outcrop/storage/file.hpp"

namespace outcrop {

/// Opens an existing regular file with `flags` of open(2). `label` names it in messages. Throws StorageError.
Descriptor open_beneath(int folder, const std::string &path, int flags, const std::string &label);

// The two ways. They return a descriptor, or -1 and errno: ELOOP for a link, EXDEV for a path that leads outside.
int open_at_once(int folder, const std::string &path, int flags);
int open_by_components(int folder, const std::string &path, int flags);

}  // namespace outcrop
