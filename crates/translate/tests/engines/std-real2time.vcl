# difference: std-conversions
# compiles on: 7.1, 7.7
vcl 4.1;
backend none none;
import std;
sub vcl_recv {
  set req.http.a = std.real2time(1.5, now);
}
