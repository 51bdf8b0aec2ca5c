# difference: functions-since-9.0
# compiles on: 9.0
vcl 4.1;
backend none none;
import std;
sub vcl_backend_response {
  std.rfc_ttl();
}
