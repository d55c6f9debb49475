// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace orbite::platform {

/// The descriptors that this process has open through SystemNetwork and SystemNeighbors. A child
/// made by fork() closes all of them before fork() returns there, so that it keeps no connection,
/// no port and no pages of its parent alive; it closes and does not shut down, which would end the
/// connections of the parent.
///
/// Not covered, and kept by such a child until it closes them itself or ends: a descriptor of
/// kDescriptorsMax or more, one that another thread is just opening or closing during the fork, and
/// children made without fork() handlers (vfork, clone). A program that the child executes keeps
/// nothing: all are close-on-exec.
///
/// Safe from any thread, and lock-free: the child may have been made while any thread was here.
inline constexpr int kDescriptorsMax = 1 << 20;

/// After it was opened.
void note_opened(int fd) noexcept;
/// Before it is closed: from then on the number may be somebody else's.
void note_closing(int fd) noexcept;

}  // namespace orbite::platform
