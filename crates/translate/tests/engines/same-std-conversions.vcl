# difference: none
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
import std;
sub vcl_recv {
  set req.http.a = std.integer(real=std.round(1.5), fallback=0);
  set req.http.b = std.time(real=1.5, fallback=now);
  set req.http.c = std.integer(time=now, fallback=0);
  set req.http.d = std.real(time=now, fallback=0.0);
}
