# difference: cookie-format
# compiles on: 7.1, 7.7
vcl 4.1;
backend none none;
import cookie;
sub vcl_recv {
  set req.http.a = cookie.format_rfc1123(now, 1d);
}
