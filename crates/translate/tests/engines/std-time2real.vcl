# difference: std-conversions
# compiles on: 7.1, 7.7
vcl 4.1;
backend none none;
import std;
sub vcl_recv {
  set req.http.a = std.time2real(now, 0.0);
}
