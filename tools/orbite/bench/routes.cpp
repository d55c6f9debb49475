// SPDX-License-Identifier: Apache-2.0
#include "bench/routes.hpp"

#include <nlohmann/json.hpp>

namespace orbite::tool::bench {
namespace {

using Json = nlohmann::json;

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Of our way into the memory of the one peer that there is.
std::string neighbor_reason(const Json& peers, Transport transport) {
  for (const Json& peer : peers) {
    const auto neighbor = peer.find("neighbor");
    if (neighbor == peer.end() || neighbor->is_null()) {
      return "the peer is on another host, or in another network namespace";
    }
    if (std::string reason = text_at(*neighbor, "reason"); !reason.empty()) {
      return reason;
    }
    return text_at(*neighbor, transport == Transport::kCma ? "ordinary_memory_reason"
                                                           : "shared_memory_reason");
  }
  return "";
}

}  // namespace

std::string why_not(const std::string& info_json, Transport transport) {
  const Json info = Json::parse(info_json);
  for (const Json& entry : info.at("transports")) {
    if (text_at(entry, "name") == transport_name(transport) && !text_at(entry, "reason").empty()) {
      return text_at(entry, "reason");
    }
  }
  if (transport != Transport::kTcp) {
    if (std::string reason = neighbor_reason(info.at("peers"), transport); !reason.empty()) {
      return reason;
    }
  }
  return "its memory was out of reach; ORBITE_LOG=info may say why";
}

std::string routes_text(const std::vector<const char*>& routes) {
  std::string text;
  for (const char* const route : routes) {
    text += text.empty() ? "" : "+";
    text += route;
  }
  return text;
}

}  // namespace orbite::tool::bench
