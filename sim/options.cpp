// SPDX-License-Identifier: Apache-2.0
#include "sim/options.hpp"

#include <algorithm>

namespace orbite::sim {
namespace {

constexpr std::array<std::string_view, kFaults> kNames = {
    "delay",        "short",    "clog",         "cut",          "cut-one-way",
    "reset",        "give-up",  "accept-fails", "no-connect",   "pause",
    "clock-jump",   "kill",     "power-loss",   "port-taken",   "no-memory",
    "late-message", "no-pages", "no-copies",    "stop-in-copy", "kill-in-copy"};

constexpr FaultSet kProcessFaults =
    bit(Fault::kPause) | bit(Fault::kClockJump) | bit(Fault::kKill) | bit(Fault::kPowerLoss) |
    bit(Fault::kPortTaken) | bit(Fault::kNoMemory) | bit(Fault::kNoPages) | bit(Fault::kNoCopies) |
    bit(Fault::kStopInCopy) | bit(Fault::kKillInCopy);

constexpr std::array<Profile, 4> kProfiles = {
    Profile{"none", 0, "a quiet world"},
    Profile{"network", kAllFaults & ~kProcessFaults, "links and connections fail, hosts live on"},
    Profile{"process", kProcessFaults, "hosts stop, die and restart, the network is quiet"},
    Profile{"all", kAllFaults, "everything"}};

}  // namespace

std::string_view fault_name(Fault fault) noexcept {
  return kNames[static_cast<std::size_t>(fault)];
}

const std::array<Profile, 4>& profiles() noexcept { return kProfiles; }

Result<FaultSet> parse_faults(std::string_view text) {
  for (const Profile& profile : kProfiles) {
    if (profile.name == text) {
      return profile.faults;
    }
  }
  FaultSet faults = 0;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    const auto* const found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  "faults '%.*s': '%.*s' is none of none, network, process, all, %s",
                  static_cast<int>(std::min<std::size_t>(text.size(), 40)), text.data(),
                  static_cast<int>(std::min<std::size_t>(name.size(), 20)), name.data(),
                  fault_names(kAllFaults).c_str());
    }
    faults |= FaultSet{1} << static_cast<unsigned>(found - kNames.begin());
    if (comma == std::string_view::npos) {
      return faults;
    }
    rest.remove_prefix(comma + 1);
  }
}

std::string fault_names(FaultSet faults) {
  std::string names;
  for (std::size_t i = 0; i < kFaults; ++i) {
    if ((faults & (FaultSet{1} << i)) != 0) {
      names += names.empty() ? "" : ",";
      names += kNames[i];
    }
  }
  return names.empty() ? "none" : names;
}

}  // namespace orbite::sim
