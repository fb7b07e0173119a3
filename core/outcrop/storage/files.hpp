#pragma once
#include "outcrop/storage/folder.hpp"
namespace outcrop {
using Held = FolderLock;
using Room = Allocation;
}  // namespace outcrop
