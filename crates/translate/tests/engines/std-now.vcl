# difference: functions-since-7.7
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
import std;
sub vcl_recv {
  set req.http.a = std.now();
}
